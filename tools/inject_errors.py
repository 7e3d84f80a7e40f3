"""`python -m tools.inject_errors`: every system call of one save fails once, with each error.

Two ranks without torch save through their real writers. strace attaches to one of the two writers
and makes the Kth call of one kind fail, for every kind, every K and every error. After each:

* every folder named like a checkpoint is one: it verifies, and its bytes are those of its step;
* the newest is not older than the last one that was reported as committed;
* the rank whose call failed says so, or the save was committed all the same;
* the next save, undisturbed, is committed, and leaves nothing behind.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.analysis.checkpoints.manifest import step_of_temporary
from holdfast.checkpoint import choose
from holdfast.checkpoint.files import DISK, read
from holdfast.checkpoint.messages import FilePiece, SaveAnswer, SaveOrder
from holdfast.checkpoint.writer_process import WriterProcess

# What writing, committing and removing may call. Not `close`, which strace would keep from closing.
CALLS = (
    "openat", "mkdir", "rename", "fsync", "pwrite64", "unlink", "unlinkat", "rmdir", "newfstatat",
    "fstat", "lseek", "getdents64", "read", "flock", "fadvise64",
)  # fmt: skip
ERRORS = (errno.EIO, errno.ENOSPC, errno.EDQUOT)
SIZE = 3 << 20
WORLD = 2
_CALL = re.compile(r"(?:\[pid +)?(\d+)\]? +(\w+)\(")


class CannotTraceError(Exception):
    """strace is not there, or may not attach here."""


@dataclass(frozen=True)
class Injection:
    rank: int
    call: str
    number: int
    error: int

    def __str__(self) -> str:
        name = errno.errorcode[self.error]
        return f"rank {self.rank}: call {self.number} of {self.call} fails with {name}"


@dataclass
class Tally:
    outcomes: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """by call"""
    wrong: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        return sum(sum(found.values()) for found in self.outcomes.values())


class Ranks:
    """Two ranks in this process, each with a writer of its own."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.step = 0
        self.reported = 0
        self.writers = [WriterProcess() for _ in range(WORLD)]
        self._states = [os.memfd_create("state") for _ in range(WORLD)]

    def save(self) -> list[SaveAnswer]:
        self.step += 1
        page = self.step.to_bytes(8, "little") * 512
        for rank in range(WORLD):
            state = self._states[rank]
            os.pwrite(state, page * (SIZE // len(page)), 0)
            pieces = (
                FilePiece(name=f"rank-{rank}.safetensors", fd=state, size=SIZE),
                FilePiece(name=f"rank-{rank}.json", text=str(self.step)),
            )
            order = SaveOrder(
                folder=self.folder,
                step=self.step,
                token=f"{self.step:06x}",
                rank=rank,
                world_size=WORLD,
                pieces=pieces,
                keep=2,
                patience=1.0,
            )
            self.writers[rank].ask(order, (state,))
        answers = [self._answer(rank) for rank in range(WORLD)]
        if answers[0].committed:
            self.reported = self.step
        return answers

    def _answer(self, rank: int) -> SaveAnswer:
        answer = self.writers[rank].answer(60)
        assert answer, f"rank {rank} has no answer after 60 s"
        return answer

    def close(self) -> None:
        for writer in self.writers:
            writer.close(5)
        for state in self._states:
            os.close(state)


@contextlib.contextmanager
def attached(pid: int, *options: str, lines: list[str] | None = None) -> Iterator[None]:
    """strace on that process and all its threads; `lines` gets what it saw, at the end."""
    if not shutil.which("strace"):
        raise CannotTraceError("strace is not installed")
    with tempfile.NamedTemporaryFile(prefix="holdfast-strace-") as out:
        tracer = subprocess.Popen(
            ["strace", "-f", "-o", out.name, *options, "-p", str(pid)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        assert tracer.stderr
        try:
            said = tracer.stderr.readline().decode()
            if "attached" not in said:
                raise CannotTraceError(said.strip())
            yield
        finally:
            tracer.send_signal(signal.SIGINT)
            tracer.wait()
            tracer.stderr.close()
            if lines is not None:
                lines += Path(out.name).read_text(errors="replace").splitlines()


def calls_of_a_save(ranks: Ranks, rank: int) -> dict[str, int]:
    """How many of each kind, in the thread that makes most of them."""
    pid = ranks.writers[rank].pid
    assert pid
    lines: list[str] = []
    with attached(pid, "-e", f"trace={','.join(CALLS)}", lines=lines):
        ranks.save()
    return {call: max(each.values()) for call, each in _counts(lines).items()}


def _counts(lines: Iterable[str]) -> dict[str, Counter[str]]:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for line in lines:
        if (found := _CALL.match(line)) and "resumed>" not in line:
            counts[found[2]][found[1]] += 1
    return counts


def inject(ranks: Ranks, what: Injection, tally: Tally) -> None:
    """One save with one failing call, and one without."""
    pid = ranks.writers[what.rank].pid
    assert pid
    rule = f"inject={what.call}:error={errno.errorcode[what.error]}:when={what.number}"
    with attached(pid, "-e", f"trace={what.call}", "-e", rule):
        answers = ranks.save()
    wrong = [*problems(ranks.folder, ranks.reported)]
    outcome = outcome_of(answers, what)
    tally.outcomes[what.call][outcome] += 1
    if outcome == "untold":
        wrong.append(f"the answer was {answers[what.rank]}")
    after = ranks.save()
    if not after[0].committed:
        wrong.append(f"the next save failed: {after[0].failed}")
    wrong += problems(ranks.folder, ranks.reported)
    wrong += [f"{name} is left" for name in temporaries(ranks.folder)]
    tally.wrong += [f"{what}: {each}" for each in wrong]


def outcome_of(answers: list[SaveAnswer], what: Injection) -> str:
    own = answers[what.rank]
    if own.failed is None:
        return "saved" if answers[0].committed else "untold"
    return "said" if own.failed.errno == what.error else "untold"


def problems(folder: str, reported: int) -> Iterator[str]:
    newest = 0
    for found in choose.candidates(folder):
        if found.problem or found.manifest is None:
            yield f"{found.path} is no checkpoint: {found.problem}"
        elif wrong := choose.verify(found.path, found.manifest.files):
            yield f"{found.path}: {wrong}"
        else:
            newest = max(newest, found.step)
            for rank in range(WORLD):
                data = read(DISK, os.path.join(found.path, f"rank-{rank}.safetensors"))
                if data != found.step.to_bytes(8, "little") * (SIZE // 8):
                    yield f"{found.path}: bytes of another step"
    if newest < reported:
        yield f"step {reported} was reported, {newest} is there"


def temporaries(folder: str) -> list[str]:
    return [name for name in os.listdir(folder) if step_of_temporary(name) is not None]


def inject_all(
    folder: str, *, errors: Iterable[int] = ERRORS, every: int = 1
) -> tuple[Tally, dict[int, dict[str, int]]]:
    """`every`: only each so manyth call, for a sample."""
    tally, ranks = Tally(), Ranks(folder)
    counted = {}
    try:
        for _ in range(3):
            ranks.save()
        for rank in range(WORLD):
            counted[rank] = calls_of_a_save(ranks, rank)
            for call, count in counted[rank].items():
                for error in errors:
                    # The first `read` is that of the order, from the rank's pipe.
                    for number in range(2 if call == "read" else 1, count + 1, every):
                        inject(ranks, Injection(rank, call, number, error), tally)
    finally:
        ranks.close()
    return tally, counted


def report(tally: Tally, counted: dict[int, dict[str, int]], minutes: float) -> str:
    today = dt.datetime.now(tz=dt.timezone.utc).date().isoformat()
    kinds = ("said", "saved")
    names = ", ".join(errno.errorcode[number] for number in ERRORS)
    lines = [
        f"# Errors injected into a save, {today}",
        "",
        f"strace made {tally.count} calls fail, one in each save, in {minutes:.1f} minutes:",
        f"every call of the writers of rank 0 and of rank 1 in a save of {WORLD}, with {names}.",
        "",
        f"| call | of rank 0 | of rank 1 | {' | '.join(kinds)} |",
        "|---|---|---|" + "---|" * len(kinds),
    ]
    for call in CALLS:
        if call in tally.outcomes:
            counts = [str(counted[rank].get(call, 0)) for rank in range(WORLD)]
            cells = [str(tally.outcomes[call][kind]) for kind in kinds]
            lines.append(f"| {call} | {' | '.join(counts)} | {' | '.join(cells)} |")
    lines += [
        "",
        "*said*: the save failed, and its answer has the error. *saved*: it was committed, for the",
        "call did not matter, or there was another way (room was made; a removal is tried again).",
        "After each the next save was committed, and nothing was left behind.",
        "",
        f"Wrong: {len(tally.wrong)}",
        *(f"- {sentence}" for sentence in tally.wrong),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tools.inject_errors")
    parser.add_argument("--every", type=int, default=1, help="only each so manyth call")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="holdfast-inject-") as folder:
        try:
            tally, counted = inject_all(os.path.join(folder, "ckpts"), every=asked.every)
        except CannotTraceError as problem:
            print(f"cannot inject errors: {problem}", file=sys.stderr)
            return 2
    text = report(tally, counted, (time.monotonic() - began) / 60)
    print(text)
    if asked.out:
        asked.out.write_text(text)
    return 1 if tally.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
