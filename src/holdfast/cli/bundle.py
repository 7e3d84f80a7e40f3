"""`holdfast bundle RUN`: one archive of a run for a colleague, without its secrets."""

from __future__ import annotations

import argparse
import os

from holdfast.cli import runs, streams

SUMMARY = "pack a run into one archive, secrets redacted, for a colleague or a bug report"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="its id, the beginning of it, or 'latest'")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="the archive (default: ./RUN.tar.gz)"
    )
    runs.add_folder(parser)


def run(arguments: argparse.Namespace) -> int:
    from holdfast.analysis.job.run_paths import RunPaths
    from holdfast.run.runs import bundle, registry
    from holdfast.view import document

    chosen = registry.find(arguments.runs, arguments.run)
    target = arguments.output or f"{chosen.id}.tar.gz"
    made = bundle.write(RunPaths(arguments.runs, chosen.id), target, environment=os.environ)
    for note in made.notes:
        streams.remark(f"note: {note}")
    if arguments.json:
        answer = document.plain("bundle", run=chosen.id, **made._asdict())
        streams.answer(answer, encoding=document.ENCODING)
    else:
        streams.answer(made.path)
        streams.remark("hint: look through it before you send it: what programs print may contain "
                       "secrets that holdfast does not recognise")  # fmt: skip
    return 0
