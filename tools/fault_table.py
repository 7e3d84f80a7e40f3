"""The fault table for real: four CPU ranks, one fault each time, judged from the run's journal.

    python -m tools.fault_table [--only kill 'fsdp2 sleep' …] [--ranks 2 0] [--keep DIR]

Prints the table; the whole of it also goes to proof/fault-table-DATE.md. The rows for FSDP2 and
for tensor × data parallel, for several worlds and for a group that was made again come on request:
`--only fsdp2`, `tp×dp`, `worlds`, `again`, or one by its whole name. Exits 1 when a row is wrong.

The table takes about ten minutes on a machine that has nothing else to do; on a busy one the times
are the neighbours'.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.memory_limit import CannotLimitError, memory_limit
from tools.fault_rows import EVERY, FAULTS, Row, judge

ROOT = Path(__file__).parent.parent
TARGETS = ROOT / "tests" / "targets"
RANKS = 4
PATIENCE = 8
JOBS = sorted({row.split()[0] for row in EVERY if row not in FAULTS})
CULPRITS = [2, 0]
"""a middle rank, and the one that torchrun and Gloo treat differently"""
ROOM = 2 << 30
"""bytes for the memory hog and its peers: four ranks need less than half of it"""
LONGEST = 180.0
"""seconds one job may take before it is ended"""
INTRODUCTION = (
    f"{RANKS} CPU ranks, an unmodified DDP script at 50 ms a step, default settings but "
    f"`--patience {PATIENCE} --max-restarts 3`; {os.cpu_count()} cores, Python "
    f"{platform.python_version()}. Seconds from the fault to the first sign in the journal, to the "
    "sentence that names the culprit, and to the action."
)


def main() -> int:
    parser = argparse.ArgumentParser(description="the fault table, for real")
    parser.add_argument("--only", "--faults", nargs="+", metavar="ROW", choices=[*EVERY, *JOBS])
    parser.add_argument("--ranks", nargs="+", type=int, default=CULPRITS, help="the culprits")
    parser.add_argument("--keep", metavar="DIR", help="keep the runs there")
    asked = parser.parse_args()
    rows = []
    with contextlib.ExitStack() as stack:
        keep = asked.keep or stack.enter_context(tempfile.TemporaryDirectory(prefix="faults-"))
        for fault in chosen(asked.only):
            for rank in asked.ranks:
                row = try_one(fault, rank, Path(keep) / f"{fault.replace(' ', '-')}-{rank}")
                rows.append(row)
                print(row.line(), flush=True)
    report = table(rows)
    print(report)
    if {(row.fault, row.rank) for row in rows} >= {(f, r) for f in FAULTS for r in CULPRITS}:
        folder = ROOT / "proof"
        folder.mkdir(exist_ok=True)
        (folder / f"fault-table-{dt.datetime.now(dt.timezone.utc):%Y-%m-%d}.md").write_text(report)
    return any(row.wrong for row in rows)


def chosen(asked: Sequence[str] | None) -> list[str]:
    return [row for row in EVERY if row in (asked or FAULTS) or row.split()[0] in (asked or ())]


def try_one(fault: str, rank: int, folder: Path) -> Row:
    folder.mkdir(parents=True)
    try:
        if fault != "hog":
            _run(fault, rank, folder)
        else:
            with memory_limit(ROOM) as enter:
                _run(fault, rank, folder, before_exec=enter)
    except CannotLimitError as problem:
        return Row(fault=fault, rank=rank, skipped=str(problem))
    return judge(fault, rank, folder, ranks=RANKS, patience=PATIENCE)


def _run(fault: str, rank: int, folder: Path, **options: object) -> None:
    row = EVERY[fault]
    command = [
        sys.executable, "-m", "holdfast", "run", "--no-check", "--patience", str(PATIENCE),
        "--max-restarts", "3", "--nproc-per-node", str(RANKS),
        str(TARGETS / row.script), str(row.steps), fault.rpartition(" ")[2], str(rank),
    ]  # fmt: skip
    environment = {**os.environ, "DDP_FAULT_TIME_FILE": str(folder / "fault-time")}
    before = options.get("before_exec")
    with (folder / "screen").open("wb") as screen:
        job = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=screen, stderr=screen,
            preexec_fn=before if callable(before) else None,  # noqa: PLW1509 - no threads here
        )  # fmt: skip
        try:
            job.wait(LONGEST)
        except subprocess.TimeoutExpired:
            job.terminate()  # judged as it stands: it did not end well
        finally:
            _end(job)


def _end(job: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 30
    while job.poll() is None and time.monotonic() < end:
        time.sleep(0.1)
    job.kill()
    job.wait()


def table(rows: Sequence[Row]) -> str:
    wrong = [row for row in rows if row.wrong]
    lines = [
        f"# Fault table, {dt.datetime.now(dt.timezone.utc):%Y-%m-%d}",
        "",
        INTRODUCTION,
        "",
        f"{len(rows) - len(wrong)} of {len(rows)} rows as they should be.",
        "",
        Row.HEAD,
        "|".join(["", *["---"] * (Row.HEAD.count("|") - 1), ""]),
        *(row.line() for row in rows),
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
