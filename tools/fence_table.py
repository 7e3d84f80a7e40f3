"""Ranks of two attempts never run at once: nodes stopped, cut off, and with a blocked terminal.

    python -m tools.fence_table [--only NUMBER…] [--results FILE]

Needs root (drill/lab) and etcd. A row takes a minute. With --results, rows that were measured
earlier stay. The page goes to proof/fence-DATE.md once all rows are there, with --results as far as
there are any. Exits 1 when ranks of two attempts ran at once.
"""

from __future__ import annotations

import argparse
import datetime as dt
import tempfile
from pathlib import Path

import msgspec

from tests.run.nodes.fence_rows import FAULTS, LASTS, ROWS, WHO, Fenced, FenceRow, play

ROOT = Path(__file__).parent.parent
INTRODUCTION = (
    "Lab hosts with one rank each, `--nnodes 1:2` and `2:5`. Each rank writes the time into one "
    f"file five times a second. The fault lasts {LASTS:.0f} s. A cell has the last write of the "
    "old attempt and the first of the new one, in seconds after the fault, and the time between "
    "them: below zero both ran at once. `make proof` repeats it (tools/fence_table.py)."
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", metavar="NUMBER", type=int, default=range(len(ROWS)))
    parser.add_argument("--results", type=Path, metavar="FILE", help="kept there, and read again")
    given = parser.parse_args()
    found: dict[str, Fenced] = {}
    if given.results is not None and given.results.exists():
        found = msgspec.json.decode(given.results.read_bytes(), type=dict[str, Fenced])
    for row in (ROWS[number] for number in given.only):
        with tempfile.TemporaryDirectory(prefix="fence-") as folder:
            seen = found[row.name] = play(row, Path(folder))
        print(f"{row.name}: {_words(seen)}", flush=True)
        if _is_wrong(seen):
            print(seen.screen, flush=True)
        if given.results is not None:
            given.results.write_bytes(msgspec.json.format(msgspec.json.encode(found)))
    if given.results is not None or len(found) == len(ROWS):
        today = f"{dt.datetime.now(dt.timezone.utc):%Y-%m-%d}"
        (ROOT / "proof" / f"fence-{today}.md").write_text(_page(found, today))
    return int(any(map(_is_wrong, found.values())))


def _is_wrong(seen: Fenced) -> bool:
    return seen.gap is not None and seen.gap < 0


def _words(seen: Fenced | None) -> str:
    if seen is None:
        return "not measured"
    if seen.gap is None:
        return "attempt 0 went on" if seen.goes_on else "ended"
    return f"{seen.old_until:.1f} s, {seen.new_from:.1f} s: **{seen.gap:+.1f} s**"


def _page(found: dict[str, Fenced], today: str) -> str:
    wrong = sum(map(_is_wrong, found.values()))
    lines = [
        f"# Ranks of two attempts never run at once, {today}",
        "",
        INTRODUCTION,
        "",
        f"Rows with ranks of two attempts at once: {wrong} of {len(found)}.",
    ]
    for nodes in (2, 5):
        lines += ["", f"## {nodes} nodes", "", f"| | {' | '.join(WHO)} |", "|---" * 4 + "|"]
        lines += [
            f"| {fault} | "
            + " | ".join(_words(found.get(FenceRow(nodes, who, fault).name)) for who in WHO)
            + " |"
            for fault in FAULTS
        ]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    raise SystemExit(main())
