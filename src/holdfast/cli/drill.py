"""`holdfast drill …`: the user's own job, broken on purpose; which promises are kept."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence

from holdfast.cli import streams

SUMMARY = "break your own job on purpose, and measure what was promised"
BROKEN = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("arguments", nargs="*", help="torchrun's flags, the script, its arguments")


def run(arguments: argparse.Namespace) -> int:
    """Only for `holdfast drill` without anything behind it; see `hold`."""
    return hold(arguments.arguments)


def hold(argv: Sequence[str]) -> int:
    """What follows is torchrun's language and ours, so argparse never sees it."""
    from holdfast.drill import asked as typed
    from holdfast.drill.conduct import Conductor
    from holdfast.view import drill_table
    from holdfast.view.drill_screen import DrillScreen

    asked = typed.parse(argv)
    if asked.only_list:
        return _list()
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end_in_order)
    screen = DrillScreen(sys.stderr)
    conductor = Conductor(asked, screen)
    try:
        report = conductor.hold()
    finally:
        screen.close()
    streams.answer(drill_table.whole(report, width=streams.width()))
    return BROKEN if report.broken else 0


def _end_in_order(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)  # on its way out everything that was started is ended


def _list() -> int:
    from holdfast import catalogue

    for entry in catalogue.entries():
        for drill in entry.fault.drills:
            needs = f" (needs {', '.join(drill.needs)})" if drill.needs else ""
            quick = ", quick" if drill.quick else ""
            streams.answer(f"{drill.name:<32}{entry.page.title}{needs}{quick}")
    return 0
