"""`holdfast stop RUN`: end a run in order, by force only where it does not answer."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from holdfast.cli import machines, runs, streams

if TYPE_CHECKING:
    from holdfast.run.runs.nodes.over_ssh import Machines

SUMMARY = "end a run: its launcher and, with it, its ranks, on all of its nodes"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="its id, the beginning of it, or 'latest'")
    runs.add_folder(parser)
    machines.add_arguments(parser, "find and end it on these machines")


def run(arguments: argparse.Namespace) -> int:
    from holdfast.run.runs import registry
    from holdfast.view import document

    if asked := machines.asked(arguments):
        return _over_ssh(arguments, asked)
    listed = registry.list_runs(arguments.runs)
    folders = registry.parts(listed, arguments.run, where=arguments.runs)
    # On a shared disk the folders of all nodes are here, but one launcher at most.
    running = [one for one in folders if one.state is registry.RunState.RUNNING]
    chosen = (running or folders)[0]
    sentence = registry.stop(chosen, tell=streams.remark)
    if chosen.node and chosen in running:
        sentence += f"; its launcher on {chosen.node} passed it on to all nodes"
    if arguments.json:
        answer = document.plain("stop", run=chosen.run, sentence=sentence)
        streams.answer(answer, encoding=document.ENCODING)
    else:
        streams.answer(sentence)
    # Nothing was ended there, and what its launcher left behind may still run.
    return 1 if chosen.state is registry.RunState.LOST else 0


def _over_ssh(arguments: argparse.Namespace, asked: Machines) -> int:
    from holdfast.run.runs.nodes import over_ssh
    from holdfast.view import document

    done = over_ssh.stop(asked, arguments.run)
    if arguments.json:
        answer = document.plain("stop", **done._asdict())
        streams.answer(answer, encoding=document.ENCODING)
    elif done.said:
        streams.answer("\n".join(f"{node}: {said}" for node, said in done.said.items()))
    elif not done.failed:
        streams.answer(f"{done.run} is not running on any machine that answered")
    return machines.tell_of([*done.failed, *done.absent])
