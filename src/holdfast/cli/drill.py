"""`holdfast drill …`: the user's own job, broken on purpose; which promises are kept."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli import streams

if TYPE_CHECKING:
    from holdfast.analysis.drill.outcome import DrillReport

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
    from holdfast.view import document
    from holdfast.view.drill_screen import DrillScreen

    asked = typed.parse(argv)
    if asked.only_list:
        return _list()
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end_in_order)
    screen = DrillScreen(sys.stderr, None if asked.json else streams.answer)
    conductor = Conductor(asked, screen)
    try:
        report = keep_report(conductor.hold(), asked.page)
        screen.end(report)
    finally:
        screen.close()
    if asked.json:
        streams.answer(document.drill(report), encoding=document.ENCODING)
    return BROKEN if report.broken else 0


def keep_report(report: DrillReport, page: str) -> DrillReport:
    """Written into the drill's folder, and to `page`, where that was asked for."""
    import msgspec

    from holdfast.view import document, drill_page

    folder, asked = Path(report.folder), Path(page) if page else None
    usual = folder / "report.html"
    report = msgspec.structs.replace(report, page=_from_here(asked or usual))
    _write(folder / "report.json", document.drill(report))
    _write(usual, drawn := drill_page.page(report))
    if asked and not _write(asked, drawn):
        report = msgspec.structs.replace(report, page=_from_here(usual))
    return report


def _write(file: Path, words: str) -> bool:
    try:
        file.write_text(words, encoding="utf-8")
    except OSError as problem:  # the table is still worth printing
        streams.remark(f"error: {file} could not be written: {problem.strerror}")
        return False
    return True


def _from_here(file: Path) -> str:
    """As short as it can be typed."""
    here = Path.cwd()
    return str(file.relative_to(here) if file.is_relative_to(here) else file)


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
