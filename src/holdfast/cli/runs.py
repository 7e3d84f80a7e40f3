"""`holdfast runs`: which runs live, which finished or failed, and why."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from holdfast.cli import machines, streams
from holdfast.text import duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.run.runs.nodes.over_ssh import Machines
    from holdfast.run.runs.nodes.seen_runs import SeenRun
    from holdfast.run.runs.registry import RunSummary

SUMMARY = "list the runs of this folder: running, finished, failed, lost"
FOLDER = "runs"


def add_folder_only(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--runs", default=FOLDER, metavar="DIR", help=f"where the runs are (default: ./{FOLDER})"
    )


def add_folder(parser: argparse.ArgumentParser) -> None:
    add_folder_only(parser)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_folder(parser)
    machines.add_arguments(parser, "also ask these machines")
    parser.add_argument("--member", action="store_true", help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    from holdfast.run.runs import registry
    from holdfast.view import document

    if arguments.member:
        from holdfast.run.runs.nodes import member

        member.serve_over_pipes()
        return 0
    if asked := machines.asked(arguments):
        return _over_ssh(arguments, asked)
    runs = registry.list_runs(arguments.runs)
    if arguments.json:
        listed = [_as_json(one) for one in runs]
        streams.answer(document.plain("runs", runs=listed), encoding=document.ENCODING)
        return 0
    from holdfast.run.runs.nodes.seen_runs import SeenRun

    _show([SeenRun(machine="", summary=one) for one in runs], arguments.runs)
    return 0


def _over_ssh(arguments: argparse.Namespace, asked: Machines) -> int:
    from holdfast.run.runs.nodes import over_ssh
    from holdfast.view import document

    found = over_ssh.list_runs(asked)
    if arguments.json:
        runs = [_as_json(one.summary) | {"machine": one.machine} for one in found.runs]
        answer = document.plain("runs", runs=runs, absent=found.absent)
        streams.answer(answer, encoding=document.ENCODING)
    else:
        _show(found.runs, asked.root)
    return machines.tell_of(found.absent)


def _as_json(summary: RunSummary) -> dict[str, Any]:
    """`state` is of the launcher; `shown` says how it ended as well, as the list on the screen."""
    import msgspec

    from holdfast.run.runs.nodes import seen_runs

    return msgspec.structs.asdict(summary) | {"shown": seen_runs.in_words(summary)}


def _show(seen: Sequence[SeenRun], where: str) -> None:
    from holdfast.run.runs.nodes.seen_runs import by_run

    if not seen:
        streams.remark(f"no runs in {where}")
        return
    runs, now = by_run(seen), time.time()
    several = any(one.summary.node for one in seen)
    head = f"{HEAD}  {'NODES':>5}" if several else HEAD
    streams.answer("\n".join([head, *(lines(run, now=now, several=several) for run in runs)]))


HEAD = f"{'RUN':<36}  {'STATE':<9}  {'STARTED':<14}  {'RANKS':>5}  {'STEPS':>8}  {'RESTARTS':>8}"


def lines(folders: Sequence[SeenRun], *, now: float, several: bool) -> str:
    """One run; its last sentence under it, where it has one, and nodes that differ from it."""
    from holdfast.run.runs.nodes import seen_runs
    from holdfast.view.text import harmless

    item = seen_runs.state_of(folders)
    began = f"{duration(max(0.0, now - item.started))} ago"
    figures = f"{item.world or '-':>5}  {item.steps or '-':>8}  {item.restarts:>8}"
    row = f"{item.run:<36}  {seen_runs.in_words(item):<9}  {began:<14}  {figures}"
    row += f"  {len(folders):>5}" if several else ""
    said = [item.said, "; ".join(seen_runs.odd_nodes(folders))]
    return "\n".join([row, *(f"    {harmless(one)}" for one in said if one)])
