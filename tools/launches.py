"""Launches in a row, and what each left behind: nothing, or the row says what.

    python -m tools.launches N [--kill-every 10] [--out FOLDER]

Two ranks with loader workers each time. Most jobs end well; in every third a rank is killed and
the group restarted; in every tenth the launcher itself gets SIGKILL: then its ranks must be gone
within 2 s, and what they had detached is the next launch's to end. Compares processes, listening
ports, /dev/shm, temporary folders, run folders, and the launcher's open files between attempts.
Exits 1 on any leak. `--out proof` writes proof/launches-DATE.md.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from holdfast.run.launch.orphans import Descendants
from holdfast.run.runs import folder, registry
from tools.leaks import Look, is_rank, wait_until

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "tests" / "targets" / "family.py"
LONGEST = 180.0
RANKS_GONE = 2.0
"""seconds after SIGKILL of the launcher"""
WEEK = 8 * 86400.0
EXPECTED = {"well": 0, "kill": 0, "wait": -9}
WORDS = {"well": "ends well", "kill": "rank killed, restart", "wait": "launcher killed"}

INTRODUCTION = (
    f"2 CPU ranks with loader workers, {os.cpu_count()} cores, Python "
    f"{platform.python_version()}. Looked for after each: processes, listening ports, /dev/shm "
    "entries, temporary and run folders, open files of the launcher. Not counted: folders that "
    "torch and multiprocessing make in the script's name (torchinductor_*, pymp-*), which a "
    "killed rank cannot remove."
)


@dataclass
class Row:
    number: int
    ending: str
    code: int | None = None
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)

    HEAD: ClassVar[str] = "| launch | what happens | exit | seconds | left behind |"

    def line(self) -> str:
        left = "; ".join(self.wrong) or "nothing"
        what = WORDS[self.ending]
        return f"| {self.number} | {what} | {self.code} | {self.seconds:.1f} | {left} |"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="launches in a row; what do they leave?")
    parser.add_argument("count", type=int, metavar="N")
    parser.add_argument("--kill-every", type=int, default=10, help="SIGKILL the launcher then")
    parser.add_argument("--out", metavar="FOLDER", help="write the table there")
    asked = parser.parse_args(argv)
    rows = []
    with tempfile.TemporaryDirectory(prefix="launches-") as work, Descendants(""):
        place = Place(Path(work))
        for number in range(1, asked.count + 1):
            rows.append(one(place, number, ending_of(number, asked.kill_every)))
            print(rows[-1].line(), flush=True)
        pruned = prune_all(place, len(rows))
    report = table(rows, pruned)
    print(report)
    if asked.out:
        os.makedirs(asked.out, exist_ok=True)
        today = f"{dt.datetime.now(dt.timezone.utc):%Y-%m-%d}"
        Path(asked.out, f"launches-{today}.md").write_text(report)
    return int(bool(pruned) or any(row.wrong for row in rows))


def ending_of(number: int, kill_every: int) -> str:
    if number % kill_every == 0:
        return "wait"
    return "kill" if number % 3 == 2 else "well"


class Place:
    """Where the runs and the temporary files of all launches go."""

    def __init__(self, work: Path) -> None:
        self.work, self.runs, self.temporary = work, work / "runs", work / "tmp"
        self.temporary.mkdir()
        self.launches = 0

    @contextlib.contextmanager
    def launch(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        command = [sys.executable, "-m", "holdfast", "run", "--no-check", "--runs", str(self.runs)]
        self.launches += 1
        with (self.work / "screen").open("wb") as screen:
            job = subprocess.Popen(
                [*command, *words], cwd=self.work, stdout=screen, stderr=screen,
                env={**os.environ, "TMPDIR": str(self.temporary)},
            )  # fmt: skip
            try:
                yield job
            finally:
                job.kill()
                job.wait()


def one(place: Place, number: int, ending: str) -> Row:
    row = Row(number, ending)
    look = Look(place.runs, place.temporary)
    notes = place.work / f"notes-{number}"
    began = time.monotonic()
    flags = ("--max-restarts", "1", "--nproc-per-node", "2")
    with place.launch(*flags, str(SCRIPT), str(notes), ending) as job:
        if ending == "wait":
            row.wrong += kill_launcher(job, notes, look)
        with contextlib.suppress(subprocess.TimeoutExpired):
            job.wait(LONGEST)
        row.code = job.poll()
    row.seconds = time.monotonic() - began
    if ending == "wait":  # a killed launcher cleans nothing: the next one does
        with place.launch("--nproc-per-node", "1", "--no-python", "true") as after:
            after.wait(LONGEST)
    row.wrong += judge(place, row, look, read_notes(notes))
    return row


def kill_launcher(job: subprocess.Popen[bytes], notes: Path, look: Look) -> list[str]:
    if not wait_until(lambda: notes.exists() or job.poll() is not None, LONGEST):
        return ["the job never came to its third step"]
    job.kill()
    job.wait()

    def ranks() -> list[str]:
        return [f"rank (pid {row.pid})" for row in look.processes() if is_rank(row.pid)]

    # A loader's worker notices by itself that its rank has gone, but only every 5 s.
    wait_until(lambda: not ranks(), RANKS_GONE)
    return [f"{rank} lives {RANKS_GONE:g} s later" for rank in ranks()]


def judge(place: Place, row: Row, look: Look, notes: list[dict[str, Any]]) -> list[str]:
    wrong = []
    if row.code != EXPECTED[row.ending]:
        last = (place.work / "screen").read_text(errors="replace").strip().splitlines()[-3:]
        wrong.append(f"exit {row.code}, not {EXPECTED[row.ending]}: {' / '.join(last)}")
    if len(notes) != 1 + (row.ending == "kill"):
        wrong.append(f"{len(notes)} attempts")
    files = [note["files"] for note in notes]
    if files and files[-1] > files[0]:
        wrong.append(f"{files[-1] - files[0]} more open files in the launcher after a restart")
    leaks = look.leaks(note["port"] for note in notes)
    wrong += [f"{kind}: {', '.join(left)}" for kind, left in vars(leaks).items() if left]
    runs = registry.run_ids(str(place.runs))
    if len(runs) != place.launches:
        wrong.append(f"{len(runs)} run folders after {place.launches} launches")
    return wrong


def read_notes(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def prune_all(place: Place, launches: int) -> list[str]:
    """They stay for a week; after that the newest few do. Here that week is over at once."""
    folder.prune(str(place.runs), now=time.time() + WEEK)
    left = len(registry.run_ids(str(place.runs)))
    if left <= folder.KEEP_RUNS:
        return []
    return [f"{left} run folders of {launches} launches stay after a week, not {folder.KEEP_RUNS}"]


def table(rows: Sequence[Row], pruned: Sequence[str]) -> str:
    clean = sum(not row.wrong for row in rows)
    lines = [
        f"# Launches in a row, {dt.datetime.now(dt.timezone.utc):%Y-%m-%d}",
        "",
        INTRODUCTION,
        "",
        f"{clean} of {len(rows)} launches left nothing behind.",
        *pruned,
        "",
        Row.HEAD,
        "|---|---|---|---|---|",
        *(row.line() for row in rows),
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
