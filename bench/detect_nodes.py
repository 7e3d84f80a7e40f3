"""A training on several hosts, one trouble each time: `holdfast run` and torchrun side by side.

    python -m bench.detect_nodes [--only ROW…] [--launcher holdfast] [--results FILE] [--screens]

Needs root (drill/lab). The rows are in tests/run/nodes: ways to start, faults, and what must stay
quiet. All of them take about an hour, most of it torchrun's silence. With --results, rows that were
measured earlier stay; once all are there, the page goes to proof/detect-nodes-DATE.md. Exits 1 when
a row of holdfast is wrong.
"""

from __future__ import annotations

import argparse
import datetime as dt
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bench.nodes_page import LAUNCHERS, Results, fault_words, page, quiet_words, start_words
from tests.run.nodes import fault_rows, quiet_rows, start_rows
from tests.run.nodes.measure import play
from tests.run.nodes.quiet_rows import play_quiet
from tests.run.nodes.scenario import LauncherName
from tests.run.nodes.start_rows import play_start

ROOT = Path(__file__).parent.parent
NAMES = [row.name for row in (*start_rows.ROWS, *fault_rows.ROWS, *quiet_rows.ROWS)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", metavar="ROW", choices=NAMES, default=NAMES)
    parser.add_argument("--launcher", choices=LAUNCHERS)
    parser.add_argument("--results", type=Path, metavar="FILE", help="kept there, and read again")
    parser.add_argument("--screens", action="store_true", help="print those of wrong rows")
    given = parser.parse_args()
    found = Results()
    if given.results is not None and given.results.exists():
        found = msgspec.json.decode(given.results.read_bytes(), type=Results)
    for launcher in [given.launcher] if given.launcher else LAUNCHERS:
        for name, said, problems, screen in measured(found, given.only, launcher):
            print(f"{name} {launcher}: {said}", flush=True)
            if given.screens and problems:
                print(screen, flush=True)
            if given.results is not None:
                given.results.write_bytes(msgspec.json.format(msgspec.json.encode(found)))
    if found.is_whole():
        today = f"{dt.datetime.now(dt.timezone.utc):%Y-%m-%d}"
        (ROOT / "proof" / f"detect-nodes-{today}.md").write_text(page(found))
    return int(bool(found.wrong()))


def measured(
    found: Results, names: list[str], launcher: LauncherName
) -> Iterator[tuple[str, str, list[str], str]]:
    """Row, what came of it in words, what is wrong, and the screens; it is in `found` by then."""
    for start in start_rows.ROWS:
        if start.name in names:
            with tempfile.TemporaryDirectory(prefix="nodes-") as folder:
                begun = play_start(start, Path(folder), launcher=launcher)
            found.starts[f"{start.name} {launcher}"] = begun
            yield start.name, start_words(begun), begun.problems, begun.screen
    for row in fault_rows.ROWS:
        if row.name in names:
            with tempfile.TemporaryDirectory(prefix="nodes-") as folder:
                seen = play(row, Path(folder), launcher=launcher)
            found.faults[f"{row.name} {launcher}"] = seen
            yield row.name, fault_words(row, seen), seen.problems, seen.screen
    for odd in quiet_rows.ROWS if launcher == "holdfast" else ():
        if odd.name in names:
            with tempfile.TemporaryDirectory(prefix="nodes-") as folder:
                quiet = play_quiet(odd, Path(folder))
            found.quiet[f"{odd.name} {launcher}"] = quiet
            yield odd.name, quiet_words(quiet), quiet.problems, quiet.screen


if __name__ == "__main__":
    sys.exit(main())
