"""`holdfast runs`: which runs live, which finished or failed, and why."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from holdfast.cli import streams
from holdfast.text import duration

if TYPE_CHECKING:
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


def run(arguments: argparse.Namespace) -> int:
    from holdfast.run.runs import registry
    from holdfast.view import document

    runs = registry.list_runs(arguments.runs)
    if arguments.json:
        streams.answer(document.plain("runs", runs=runs), encoding=document.ENCODING)
    elif runs:
        streams.answer("\n".join([HEAD, *(line(item, now=time.time()) for item in runs)]))
    else:
        streams.remark(f"no runs in {arguments.runs}")
    return 0


HEAD = f"{'RUN':<36}  {'STATE':<9}  {'STARTED':<14}  {'RANKS':>5}  {'STEPS':>8}  {'RESTARTS':>8}"


def line(item: RunSummary, *, now: float) -> str:
    """One run; its last sentence under it, where it has one."""
    from holdfast.run.runs.registry import RunState
    from holdfast.view.text import harmless

    state = item.state.value
    if item.state is RunState.ENDED:
        state = f"exit {item.exit_code}" if item.exit_code else "finished"
    began = f"{duration(max(0.0, now - item.started))} ago"
    figures = f"{item.world or '-':>5}  {item.steps or '-':>8}  {item.restarts:>8}"
    row = f"{item.id:<36}  {state:<9}  {began:<14}  {figures}"
    return f"{row}\n    {harmless(item.said)}" if item.said else row
