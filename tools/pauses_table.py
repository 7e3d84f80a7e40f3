"""Pauses that torchrun goes on from, in a training on two hosts: `holdfast run` beside it.

    python -m tools.pauses_table [--only ROW…] [--launcher holdfast] [--results FILE] [--screens]

Needs root (drill/lab). The rows are in tests/run/nodes/pause_rows.py. With --results, rows that
were measured earlier stay; once all of holdfast are there, the page goes to proof/pauses-DATE.md.
Exits 1 when a row of holdfast is not as the row says.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import sys
import tempfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import msgspec

from tests.run.nodes import pause_rows
from tests.run.nodes.pause_rows import Paused, PauseRow
from tests.run.nodes.scenario import LauncherName

ROOT = Path(__file__).parent.parent
LAUNCHERS: tuple[LauncherName, ...] = ("torchrun", "holdfast")
Results = dict[str, Paused]
"""by 'ROW LAUNCHER'"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    names = list(pause_rows.BY_NAME)
    parser.add_argument("--only", nargs="+", metavar="ROW", choices=names, default=names)
    parser.add_argument("--launcher", choices=LAUNCHERS)
    parser.add_argument("--results", type=Path, metavar="FILE", help="kept there, and read again")
    parser.add_argument("--screens", action="store_true", help="print those of wrong rows")
    given = parser.parse_args()
    found: Results = {}
    if given.results is not None and given.results.exists():
        found = msgspec.json.decode(given.results.read_bytes(), type=Results)
    for name in given.only:
        for launcher in [given.launcher] if given.launcher else LAUNCHERS:
            row = pause_rows.BY_NAME[name]
            with tempfile.TemporaryDirectory(prefix="pause-") as folder:
                seen = pause_rows.play_pause(row, Path(folder), launcher=launcher)
            found[f"{name} {launcher}"] = seen
            print(f"{name} {launcher}: {in_words(seen)}", flush=True)
            if given.screens and wrong(row, seen):
                print(seen.screen, flush=True)
            if given.results is not None:
                given.results.write_bytes(msgspec.json.format(msgspec.json.encode(found)))
    if all(f"{name} holdfast" in found for name in names):
        today = f"{dt.datetime.now(dt.timezone.utc):%Y-%m-%d}"
        (ROOT / "proof" / f"pauses-{today}.md").write_text(page(found))
    return int(any(wrong(pause_rows.BY_NAME[key.split()[0]], seen) for key, seen in found.items()))


def wrong(row: PauseRow, seen: Paused) -> list[str]:
    """Of holdfast; torchrun is as it is."""
    if seen.launcher != "holdfast":
        return []
    more = seen.attempts > row.attempts
    return [*seen.problems, *([f"{seen.attempts} attempts"] if more else [])]


def in_words(seen: Paused | None) -> str:
    if seen is None:
        return "not measured this time"
    ended = ", ".join("runs on" if c is None else str(c) for c in seen.exits.values())
    attempts = f"{seen.attempts} attempt{'s' * (seen.attempts != 1)}"
    goes_on = (
        "no step after it" if seen.resumed is None else f"next step {seen.resumed:.1f} s later"
    )
    return f"ended with {ended}; {attempts}, {seen.repeated} steps repeated; {goes_on}"


def page(found: Mapping[str, Paused]) -> str:
    rows = [
        f"| {row.what}: {row.seconds:g} s | `{row.nnodes}` | "
        f"{in_words(found.get(f'{row.name} torchrun'))} | "
        f"{in_words(found[f'{row.name} holdfast'])} |"
        for row in pause_rows.ROWS
    ]
    said = [
        f"- {row.what}, `--nnodes {row.nnodes}`: " + ("; ".join(one) if one else "nothing")
        for row in pause_rows.ROWS
        for one in (found[f"{row.name} holdfast"].said,)
    ]
    bad = [
        f"- {row.name}: {'; '.join(what)}"
        for row in pause_rows.ROWS
        if (what := wrong(row, found[f"{row.name} holdfast"]))
    ]
    about = (
        f"{dt.datetime.now(dt.timezone.utc):%Y-%m-%d}, two hosts in namespaces of one machine with "
        f"{os.cpu_count()} cores, torch {metadata.version('torch')}, one rank with Gloo on each; "
        "by `python -m tools.pauses_table`. SIGSTOP stops what is named, SIGCONT lets it go on. "
        "Exit codes are those of the two launchers, the coordinator's first; the next step is the "
        "first new one after the pause. Rows were measured one by one, on a machine that had other "
        "work as well: the seconds are rough."
    )
    return "\n".join(
        [
            "# Pauses that torchrun goes on from, and holdfast beside it",
            "",
            about,
            "",
            "| pause | --nnodes | torchrun | holdfast run |",
            "|---|---|---|---|",
            *rows,
            "",
            "What holdfast said of it:",
            "",
            *said,
            "",
            f"Rows of holdfast that are wrong: {len(bad)}",
            *bad,
            "",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
