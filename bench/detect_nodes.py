"""A training on several hosts, one fault each time: `holdfast run` and torchrun side by side.

    python -m bench.detect_nodes [--only ROW…] [--launcher holdfast|torchrun] [--results FILE]

Lab hosts (tests/lab; needs root) share this machine's cores. Unmodified defaults: Gloo's timeout is
its half hour. torchrun gets what makes it start there (`--local-addr`, `--rdzv-conf is_host=`), and
its ranks' output goes to files, so that only the launchers' own lines count. With --results a row
that was measured earlier stays, and the page is written once all rows are there.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import platform
import sys
import tempfile
from pathlib import Path

import msgspec

from tests.run.nodes.fault_rows import BY_NAME, ROWS, FaultRow
from tests.run.nodes.measure import PATIENCE, Measured, play
from tests.run.nodes.scenario import LauncherName

ROOT = Path(__file__).parent.parent
LAUNCHERS: tuple[LauncherName, ...] = ("holdfast", "torchrun")
INTRODUCTION = (
    "Four lab hosts with one Gloo rank each, unless it says otherwise, 50 ms a step, a checkpoint "
    f"every 20 steps; default timeouts; {os.cpu_count()} cores shared by all hosts, Python "
    f"{platform.python_version()}. Seconds from the fault to the sentence on the last of the nodes "
    "that are left, and to the first step of the next attempt."
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", metavar="ROW", choices=sorted(BY_NAME))
    parser.add_argument("--launcher", choices=LAUNCHERS)
    parser.add_argument("--results", type=Path, metavar="FILE", help="kept there, and read again")
    parser.add_argument("--screens", action="store_true", help="of every row that is wrong")
    given = parser.parse_args()
    found = _read(given.results)
    for row in ROWS:
        if given.only and row.name not in given.only:
            continue
        for launcher in [given.launcher] if given.launcher else LAUNCHERS:
            with tempfile.TemporaryDirectory(prefix="nodes-") as folder:
                seen = play(row, Path(folder), launcher=launcher)
            found[f"{row.name} {launcher}"] = seen
            print(f"{row.name} {launcher}: {words(row, seen)}", flush=True)
            if given.screens and seen.problems:
                print(seen.screen, flush=True)
            if given.results:
                given.results.write_bytes(msgspec.json.format(msgspec.json.encode(found)))
    if all(f"{row.name} {launcher}" in found for row in ROWS for launcher in LAUNCHERS):
        page = ROOT / "proof" / f"detect-nodes-{dt.datetime.now(dt.timezone.utc):%Y-%m-%d}.md"
        page.write_text(table(found))
    return int(any(seen.problems for key, seen in found.items() if key.endswith("holdfast")))


def _read(results: Path | None) -> dict[str, Measured]:
    if results is None or not results.exists():
        return {}
    return msgspec.json.decode(results.read_bytes(), type=dict[str, Measured])


# --- in words ------------------------------------------------------------------------------------


def words(row: FaultRow, seen: Measured) -> str:
    said = _holdfast(row, seen) if seen.launcher == "holdfast" else _torchrun(row, seen)
    return said + "".join(f"<br>**{problem}**" for problem in seen.problems)


def _holdfast(row: FaultRow, seen: Measured) -> str:
    times = [seconds for seconds in seen.named.values() if seconds is not None]
    if not times:
        return "nothing right said"
    nodes = f"{len(times)} of {len(seen.named)} nodes"
    return f"{max(times):.1f} s on {nodes}; {_rest(row, seen)}"


def _torchrun(row: FaultRow, seen: Measured) -> str:
    if seen.started is None:
        return "does not start"
    if seen.first_word is None:
        said = f"nothing in {PATIENCE:.0f} s"
    else:
        times = [seconds for seconds in seen.named.values() if seconds is not None]
        named = f"node named after {min(times):.1f} s" if times else "no node named"
        said = f"first word after {seen.first_word:.1f} s, {named}"
    return f"{said}; {_rest(row, seen)}"


def _rest(row: FaultRow, seen: Measured) -> str:
    parts = []
    if seen.resumed is not None:
        parts.append(
            f"{seen.world} ranks go on after {seen.resumed:.1f} s, {seen.repeated} steps again"
        )
    elif row.after == "stops" or seen.launcher == "torchrun":
        parts.append("ended" if seen.ended else f"runs or hangs after {PATIENCE:.0f} s")
    if seen.orphans:
        parts.append(f"processes left on {', '.join(seen.orphans)}")
    return "; ".join(parts) or "named"


def table(found: dict[str, Measured]) -> str:
    wrong = [row.name for row in ROWS if found[f"{row.name} holdfast"].problems]
    lines = [
        f"# Faults of a training on several hosts, {dt.datetime.now(dt.timezone.utc):%Y-%m-%d}",
        "",
        INTRODUCTION,
        "",
        f"holdfast: {len(ROWS) - len(wrong)} of {len(ROWS)} rows as they should be.",
        "",
        "| fault | holdfast run | torchrun |",
        "|---|---|---|",
    ]
    for row in ROWS:
        cells = [words(row, found[f"{row.name} {launcher}"]) for launcher in LAUNCHERS]
        lines.append(f"| {row.what} | {cells[0]} | {cells[1]} |")
    lines += ["", "What holdfast said:", ""]
    lines += [f"- {row.name}: `{found[f'{row.name} holdfast'].sentence}`" for row in ROWS]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.exit(main())
