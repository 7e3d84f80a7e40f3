"""`holdfast stop RUN`: end a run in order, by force only where it does not answer."""

from __future__ import annotations

import argparse

from holdfast.cli import runs, streams

SUMMARY = "end a run: its launcher and, with it, its ranks"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="its id, the beginning of it, or 'latest'")
    runs.add_folder(parser)


def run(arguments: argparse.Namespace) -> int:
    from holdfast.run.runs import registry
    from holdfast.view import document

    chosen = registry.find(arguments.runs, arguments.run)
    sentence = registry.stop(chosen, tell=streams.remark)
    if arguments.json:
        answer = document.plain("stop", run=chosen.id, sentence=sentence)
        streams.answer(answer, encoding=document.ENCODING)
    else:
        streams.answer(sentence)
    return 0
