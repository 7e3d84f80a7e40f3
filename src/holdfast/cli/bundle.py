"""`holdfast bundle RUN`: one archive of a run for a colleague, without its secrets."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from holdfast.cli import machines, runs, streams

if TYPE_CHECKING:
    from holdfast.run.runs.bundle import Bundle
    from holdfast.run.runs.nodes.over_ssh import Machines

SUMMARY = "pack a run into one archive, secrets redacted, for a colleague or a bug report"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="its id, the beginning of it, or 'latest'")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="the archive (default: ./RUN.tar.gz)"
    )
    runs.add_folder(parser)
    machines.add_arguments(parser, "gather its folders from these machines")


def run(arguments: argparse.Namespace) -> int:
    if asked := machines.asked(arguments):
        return _over_ssh(arguments, asked)
    from holdfast.analysis.job.run_paths import RunPaths
    from holdfast.run.runs import bundle, registry

    listed = registry.list_runs(arguments.runs)
    folders = registry.parts(listed, arguments.run, where=arguments.runs)
    name = folders[0].run if len(folders) > 1 else folders[0].id
    target = arguments.output or f"{name}.tar.gz"
    if len(folders) == 1:
        made = bundle.write(RunPaths(arguments.runs, name), target, environment=os.environ)
    else:
        from holdfast.run.runs.nodes.seen_runs import SeenRun, labels

        nodes = labels([SeenRun(machine="", summary=one) for one in folders])
        parts = {
            node: RunPaths(arguments.runs, one.id) for node, one in zip(nodes, folders, strict=True)
        }
        made = bundle.write_nodes(name, parts, target, environment=os.environ)
    _answer(arguments, name, made)
    return 0


def _over_ssh(arguments: argparse.Namespace, asked: Machines) -> int:
    from holdfast.run.runs.nodes import over_ssh

    made = over_ssh.write_bundle(asked, arguments.run, arguments.output)
    _answer(arguments, made.run, made.bundle, nodes=made.nodes, absent=made.absent)
    return machines.tell_of(made.absent)


def _answer(arguments: argparse.Namespace, name: str, made: Bundle, **more: object) -> None:
    from holdfast.view import document

    for note in made.notes:
        streams.remark(f"note: {note}")
    if arguments.json:
        answer = document.plain("bundle", run=name, **made._asdict(), **more)
        streams.answer(answer, encoding=document.ENCODING)
    else:
        streams.answer(made.path)
        streams.remark("hint: look through it before you send it: what programs print may contain "
                       "secrets that holdfast does not recognise")  # fmt: skip
