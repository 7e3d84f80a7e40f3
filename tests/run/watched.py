"""Small real processes under watch, without torch."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from holdfast.rank import heartbeat_page
from holdfast.run.launch.output_tail import TAIL
from holdfast.run.watch.rank_state import ObservedRank

SLEEP = "import time\nprint('here', flush=True)\ntime.sleep(600)\n"


@contextlib.contextmanager
def process(text: str, *, stderr: int | None = None) -> Iterator[subprocess.Popen[str]]:
    """A Python of its own session; with 'here' printed it is known to have come that far."""
    started = subprocess.Popen(
        [sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=stderr, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        if "here" in text:
            assert started.stdout
            assert started.stdout.readline() == "here\n"
        yield started
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.communicate()


def _end_of(file: Path) -> bytes:
    return file.read_bytes()[-TAIL:] if file.exists() else b""


@contextlib.contextmanager
def watched(folder: Path, pid: int, rank: int = 0) -> Iterator[ObservedRank]:
    descriptor, page = heartbeat_page.create()
    try:
        yield ObservedRank(
            rank=rank, local_rank=rank, pid=pid, host="here", page=page,
            words_file=str(folder / f"{rank}.words"),
            stderr_file=str(folder / f"{rank}.err"),
            stderr_tail=lambda: _end_of(folder / f"{rank}.err"),
            socket=str(folder / f"{rank}.sock"), started_at=time.monotonic(),
        )  # fmt: skip
    finally:
        page.close()
        os.close(descriptor)
