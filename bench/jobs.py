"""Start a launcher with its ranks, read what it says as it says it, and end all of it."""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import psutil

TRAIN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "train.py")
LAST_ACTS = 20.0
"""seconds for a launcher to end"""


class Line(NamedTuple):
    at: float
    """seconds of the monotonic clock"""
    text: str


class Job:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[Line] = []
        self._queue: queue.SimpleQueue[Line | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        for text in self.process.stdout:
            self._queue.put(Line(time.monotonic(), text.rstrip("\n")))
        self._queue.put(None)

    def hear(self, *, until: float) -> Iterator[Line]:
        """Every line as it comes, until the launcher ends or that time has come."""
        while (left := until - time.monotonic()) > 0:
            try:
                line = self._queue.get(timeout=left)
            except queue.Empty:
                return
            if line is None:
                return
            self.lines.append(line)
            yield line

    def wait_for(self, words: str, *, seconds: float = 120) -> Line:
        for line in self.hear(until=time.monotonic() + seconds):
            if words in line.text:
                return line
        heard = "\n".join(line.text for line in self.lines[-20:])
        raise RuntimeError(f"{words!r} was not said within {seconds} s:\n{heard}")


@contextlib.contextmanager
def job(
    command: Sequence[str], *, folder: str, environment: Mapping[str, str] | None = None
) -> Iterator[Job]:
    """Whatever happens, none of its processes is left: ranks have sessions of their own."""
    process = subprocess.Popen(
        command, cwd=folder, env={**os.environ, **(environment or {})}, text=True, errors="replace",
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        started = Job(process)
        yield started
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            ranks = psutil.Process(process.pid).children(recursive=True)
            process.terminate()  # it may have something to clear away
            for rank in ranks:
                with contextlib.suppress(psutil.NoSuchProcess):
                    rank.kill()
        try:
            process.wait(timeout=LAST_ACTS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        started._reader.join()  # noqa: SLF001
        assert process.stdout
        process.stdout.close()
