"""Rank 0's end of its uploader: hand it what was committed, hear what became of it.

While one checkpoint is being uploaded only the newest of those that come meanwhile waits: a slow
line makes copies rarer, it does not make a queue.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time

import msgspec

from holdfast.checkpoint.remote.uploader import UploadAnswer, UploadOrder
from holdfast.rank.print_line import say

QUIET = 60.0
"""seconds without a byte after which the end of the job no longer waits"""
SAY_EVERY = 10.0


class Uploads:
    def __init__(self, url: str, *, keep: int, keep_every: int | None) -> None:
        self.url, self._keep, self._keep_every = url, keep, keep_every
        self._process: subprocess.Popen[bytes] | None = None
        self._text = b""
        self._current = self._next = ""
        self._failed = ""
        self.uploaded = ""
        """the newest that is there"""

    @property
    def busy(self) -> bool:
        return bool(self._current)

    def offer(self, path: str) -> None:
        """A checkpoint that was just committed. Returns at once."""
        self._next = path
        self._start_next()

    def poll(self, timeout: float = 0.0) -> bool:
        """Hears what there is to hear; whether that was anything."""
        if self._process is None or not self._current:
            return False
        stdout = self._process.stdout
        assert stdout
        if not select.select([stdout], [], [], timeout)[0]:
            return False
        more = os.read(stdout.fileno(), 1 << 16)
        self._text += more
        *lines, self._text = self._text.split(b"\n")
        for line in lines:
            self._hear(msgspec.json.decode(line, type=UploadAnswer))
        if not more:
            self._end()
            self._finish("the process that uploads has ended")
        return True

    def close(self, seconds: float | None = None) -> None:
        """Waits for what was offered for as long as bytes flow; then ends the uploader."""
        began = heard = said = time.monotonic()
        while self._current:
            if self.poll(0.2):
                heard = time.monotonic()
            now = time.monotonic()
            if now - heard > QUIET or (seconds is not None and now - began > seconds):
                say(f"{self._current} is not in {self.url}: the upload was given up")
                break
            if now - said > SAY_EVERY:
                said = now
                say(f"{self._current} is being uploaded to {self.url}")
        self._end()

    def _hear(self, answer: UploadAnswer) -> None:
        if answer.done:
            if not answer.problem:
                self.uploaded = answer.path
            self._finish(answer.problem)

    def _finish(self, problem: str) -> None:
        path, self._current = self._current, ""
        if problem and problem != self._failed:
            say(
                f"{path} was not uploaded to {self.url}: {problem}; training continues, the next "
                "checkpoint is tried"
            )
        self._failed = problem
        self._start_next()

    def _start_next(self) -> None:
        if self._current or not self._next:
            return
        self._current, self._next = self._next, ""
        order = UploadOrder(path=self._current, keep=self._keep, keep_every=self._keep_every)
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "holdfast.checkpoint.remote.uploader", self.url],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):  # it died: `poll` hears of it
            self._process.stdin.write(msgspec.json.encode(order) + b"\n")
            self._process.stdin.flush()

    def _end(self) -> None:
        process, self._process, self._text = self._process, None, b""
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(BrokenPipeError):
                assert pipe
                pipe.close()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
