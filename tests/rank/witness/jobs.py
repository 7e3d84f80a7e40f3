"""Scripts with a witness: started as ranks, and what they recorded."""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
from pathlib import Path

from holdfast.analysis.drill.records import RankAttempt, decode_lines
from holdfast.drill.short_path import short_path
from holdfast.rank.witness import delivery
from tests.rank.ranks import PATIENCE, free_port, place

SHORT_NAMES = contextlib.ExitStack()
"""of folders for temporary files, in which a loader's workers make sockets; gone with the tests"""
atexit.register(SHORT_NAMES.close)


def started(
    folder: Path, script: Path, *arguments: str, ranks: int = 1, **others: str
) -> list[subprocess.Popen[str]]:
    """One process for each rank, without a launcher; in a job folder as a drill makes it."""
    for name in ("work", "tmp", "witness"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    short = SHORT_NAMES.enter_context(short_path(folder / "tmp"))
    outer = {**os.environ, "TMPDIR": short, "OMP_NUM_THREADS": "1", **others}
    made = delivery.environment(folder / "witness", outer)
    port = free_port()
    return [
        subprocess.Popen(
            [sys.executable, str(script), *arguments],
            env={**made, **place(rank, ranks, port)}, cwd=folder / "work",
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(ranks)
    ]  # fmt: skip


def ended(processes: list[subprocess.Popen[str]]) -> list[tuple[str, str, int]]:
    """What each wrote to stdout and stderr, and its code."""
    told = []
    try:
        for one in processes:
            out, err = one.communicate(timeout=PATIENCE)
            told.append((out, err, one.returncode))
    finally:
        for one in processes:
            one.kill()
    return told


def recorded(folder: Path) -> list[RankAttempt]:
    """In the order of their ranks, then of their attempts."""
    files = (folder / "witness").glob("rank-*.jsonl")
    found = [RankAttempt.of(decode_lines(file.read_bytes())) for file in files]
    return sorted((one for one in found if one), key=lambda one: (one.began.rank, one.began.t))
