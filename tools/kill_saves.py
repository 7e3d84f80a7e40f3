"""`python -m tools.kill_saves N`: N real SIGKILLs at random moments of real saves; none may lose.

A rank without torch stages 20 MB and saves as fast as it can. Its writer, the rank, or both are
killed. After every kill the folder is read as a resume reads it: the newest checkpoint that
verifies must not be older than the last one that was reported as committed, and its bytes must be
those of its step.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.analysis.checkpoints.manifest import step_of_temporary
from holdfast.checkpoint import choose
from holdfast.checkpoint.commit import sweep
from holdfast.checkpoint.files import DISK, read

# Prints `writer PID` and `committed STEP`. Every page carries the step, so that bytes of two steps
# cannot pass as one.
RANK = """
import os, sys
from holdfast.checkpoint.lock import FolderLock
from holdfast.checkpoint.messages import FilePiece, SaveOrder
from holdfast.checkpoint.writer_process import WriterProcess
folder, step, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
fd = os.memfd_create("state")
writer = WriterProcess()
lock = FolderLock(folder)
if sys.argv[4]:  # with it, a writer finishes the save of a killed rank
    os.makedirs(folder, exist_ok=True)
    lock.take()
fds = (fd, lock.fd) if lock.held else (fd,)
while True:
    step += 1
    page = step.to_bytes(8, "little") * 512
    for at in range(0, size, 1 << 20):
        os.pwrite(fd, page * 256, at)
    writer.ask(SaveOrder(folder=folder, step=step, token=os.urandom(4).hex(), rank=0, world_size=1,
                    keep=2, lock=lock.fd,
                    pieces=(FilePiece(name="rank-0.safetensors", fd=fd, size=size),
                            FilePiece(name="rank-0.json", text=str(step)))), fds)
    print("writer", writer.pid, flush=True)
    answer = writer.answer(None)
    if answer.committed:
        print("committed", step, flush=True)
"""
SIZE = 20 << 20
VICTIMS = ("writer", "rank")


@dataclass
class Tally:
    kills: Counter[str] = field(default_factory=Counter)
    during: int = 0
    """kills that left an unfinished save behind"""
    committed: int = 0
    finished_alone: int = 0
    """kills of a rank after which its writer completed the save"""
    lost: list[str] = field(default_factory=list)


class Job:
    """One rank, from its start to the kill that ends it."""

    def __init__(self, folder: str, step: int, *, lock: bool = False) -> None:
        self.writer = 0
        self.reported = step
        self.saves = 0
        self._text = b""
        # Rank and writer share this stderr: its end means that both are gone.
        self._process = subprocess.Popen(
            [sys.executable, "-c", RANK, folder, str(step), str(SIZE), "lock" if lock else ""],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self._process.stdout
        assert self._process.stderr
        self._out, self._err = self._process.stdout, self._process.stderr
        os.set_blocking(self._out.fileno(), False)

    def hear(self, seconds: float) -> None:
        """What it reports in this time."""
        deadline = time.monotonic() + seconds
        while True:
            self._text += self._out.read() or b""
            *lines, self._text = self._text.split(b"\n")
            for word, number in (line.split() for line in lines):
                if word == b"writer":
                    self.writer = int(number)
                else:
                    self.reported, self.saves = int(number), self.saves + 1
            if time.monotonic() >= deadline:
                return
            time.sleep(0.001)

    def wait_for_a_writer(self, other_than: int = 0) -> None:
        deadline = time.monotonic() + 30
        while self.writer in (0, other_than):
            assert time.monotonic() < deadline, "no save within 30 s"
            self.hear(0.001)

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """So that it starts no other writer while the folder is looked at.

        It also keeps the writer's pid: the rank cannot wait for it, so the number is not reused.
        """
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)
        try:
            self.hear(0)
            os.kill(self.writer, signal.SIGKILL)
            while _alive(self.writer):
                time.sleep(0.001)
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        complaints = self._err.read()  # until the writer is gone as well
        self.hear(0)  # what was said before the kill counts
        self._out.close()
        self._err.close()
        assert not complaints, complaints.decode()


def _alive(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def newest(folder: str) -> tuple[int, str]:
    """(step, '') of what a resume would take, or what is wrong with it."""
    for candidate in choose.candidates(folder):
        if candidate.problem or candidate.manifest is None:
            return 0, f"{candidate.path}: {candidate.problem}"
        if problem := choose.verify(candidate.path, candidate.manifest.files):
            return 0, f"{candidate.path}: {problem}"
        data = read(DISK, os.path.join(candidate.path, "rank-0.safetensors"))
        if data != candidate.step.to_bytes(8, "little") * (SIZE // 8):
            return 0, f"{candidate.path}: bytes of another step"
        return candidate.step, ""
    return 0, ""


def check(folder: str, reported: int, tally: Tally) -> int:
    step, problem = newest(folder)
    if problem or step < reported:
        tally.lost.append(problem or f"step {reported} was reported, {step} is there")
    names = os.listdir(folder) if os.path.isdir(folder) else []
    tally.during += any(step_of_temporary(name) is not None for name in names)
    return step


def kill_many(count: int, folder: str, chance: random.Random) -> Tally:
    tally, step = Tally(), 0
    while sum(tally.kills.values()) < count:
        job = Job(folder, step, lock=chance.random() < 0.5)
        try:
            job.wait_for_a_writer()
            kill_writers(job, folder, chance, tally, count)
        finally:
            job.kill()
        step = check(folder, job.reported, tally)
        tally.kills["rank"] += 1
        tally.finished_alone += step > job.reported
        tally.committed += job.saves
        sweep(DISK, folder)  # as a resume does
    return tally


def kill_writers(job: Job, folder: str, chance: random.Random, tally: Tally, count: int) -> None:
    """Until it is the rank's turn; now and then that is while its writer is just dead."""
    while True:
        job.hear(chance.expovariate(1 / 0.08))
        if chance.random() < 0.5 or sum(tally.kills.values()) >= count - 1:
            return
        tally.kills["writer"] += 1
        killed = job.writer
        with job.stopped():
            check(folder, job.reported, tally)
        if chance.random() < 0.3:
            return
        job.wait_for_a_writer(other_than=killed)


def report(tally: Tally, minutes: float) -> str:
    kills = ", ".join(f"{tally.kills[name]} of {name}" for name in VICTIMS)
    today = dt.datetime.now(tz=dt.timezone.utc).date().isoformat()
    lines = [
        f"# Saves killed, {today}",
        "",
        f"{sum(tally.kills.values())} SIGKILLs ({kills}) in {minutes:.1f} minutes.",
        f"{tally.committed} saves of {SIZE >> 20} MiB were reported as committed;",
        f"{tally.during} kills left the files of an unfinished one behind, and",
        f"{tally.finished_alone} saves were finished by the writer of a killed rank.",
        "",
        f"Lost: {len(tally.lost)}",
        *(f"- {sentence}" for sentence in tally.lost),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tools.kill_saves")
    parser.add_argument("count", type=int, nargs="?", default=1000)
    parser.add_argument("--seed", default=None)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="holdfast-kills-") as folder:
        tally = kill_many(asked.count, os.path.join(folder, "ckpts"), random.Random(asked.seed))
    text = report(tally, (time.monotonic() - began) / 60)
    print(text)
    if asked.out:
        asked.out.write_text(text)
    return 1 if tally.lost else 0


if __name__ == "__main__":
    sys.exit(main())
