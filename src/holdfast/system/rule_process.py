"""Searches text for the patterns of a user's own rules, in a process that may be lost at any time
(rule_worker.py). No call waits longer than it says, whatever a pattern does.

    search = RuleProcess(patterns)
    search.feed(stream, text, at=time.monotonic())      # from any thread
    for hit in search.poll(): ...
    for failed in search.failures(): ...                # patterns that are no longer searched
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from holdfast.system import rule_worker
from holdfast.system.kernel_calls import memory_file
from holdfast.system.rule_worker import BUDGET, CURRENT, FRAME

QUEUE = 16 << 20
"""bytes that wait to be searched; what comes on top is left out, and counted"""
LARGEST_FRAME = 256 << 10
LONGEST_LINE = 16 << 10
"""bytes of a line without an end that are kept; of a longer one the beginning"""
STARTS = 3
"""times that a process that ended for no reason of a pattern's is started again"""
NOT_FOR_IT = {
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2
}  # fmt: skip


class SearchedPattern(msgspec.Struct, frozen=True, kw_only=True):
    """Of one rule, as the process gets it."""

    pattern: str
    number: bool = False
    """the captured number counts"""
    above: float | None = None
    below: float | None = None
    after_prefix: bool = False
    """`^` may stand behind what a launcher writes before a line; then `PatternHit.start` says so"""


class PatternHit(NamedTuple):
    pattern: int
    """its place among those that were given"""
    stream: int
    number: int
    """of the line in its stream, from 1"""
    at: float
    line: str
    start: int
    """where in the line the text begins that was searched: behind a prefix, or 0"""
    lines: int
    """it stands for so many"""
    value: float | None
    beyond: bool
    not_a_number: str
    """what was captured where that is none"""


class SearchFailure(NamedTuple):
    pattern: int | None
    """which one is searched no more; None for all of them"""
    why: str


class _Frame(NamedTuple):
    at: float
    size: int
    data: bytes


class RuleProcess:
    def __init__(
        self, patterns: Sequence[SearchedPattern], *, apart: float = 0.0, quoted: int = 300
    ) -> None:
        """`apart`: seconds between two hits of one pattern in one stream; others are counted.
        `quoted`: characters of a line that are handed back."""
        self._patterns = dict(enumerate(patterns))
        self._apart, self._quoted = apart, quoted
        self._lock = threading.RLock()
        self._held: dict[int, bytes] = {}
        self._lines: dict[int, int] = {}
        self._waiting: deque[_Frame] = deque()
        """fed and not yet sent as a whole"""
        self._sent: deque[_Frame] = deque()
        """sent and not yet answered"""
        self._part = b""
        """the rest of the frame that is being sent"""
        self._bytes = 0
        self._answers = b""
        self._hits: list[PatternHit] = []
        self._failures: list[SearchFailure] = []
        self._lost = 0
        self._deaths = 0
        self._page = memory_file("holdfast-rules")
        os.truncate(self._page, CURRENT.size)
        self._current = mmap.mmap(self._page, CURRENT.size)
        self._process: subprocess.Popen[bytes] | None = None
        self._link: socket.socket | None = None
        self._start()

    # --- what others call ----------------------------------------------------------------------

    def feed(self, stream: int, text: bytes, *, at: float) -> None:
        """Never raises, and waits for nothing but the end of a process that was lost (0.2 s at
        most). Lines are searched when they are whole."""
        with self._lock:
            if self._link is None:
                return
            whole = self._held.get(stream, b"") + text
            cut = max(whole.rfind(b"\n"), whole.rfind(b"\r")) + 1
            self._held[stream] = whole[cut:][:LONGEST_LINE]
            self._put(stream, whole[:cut], at)
            self._move()

    def end(self, stream: int, *, at: float) -> None:
        """Its last line may have no end."""
        with self._lock:
            if rest := self._held.pop(stream, b""):
                self._put(stream, rest, at)
            self._lines.pop(stream, None)
            self._move()

    def end_all(self, *, at: float) -> None:
        for stream in list(self._held):
            self.end(stream, at=at)

    def poll(self) -> list[PatternHit]:
        """Never waits."""
        with self._lock:
            self._move()
            hits, self._hits = self._hits, []
            return hits

    def failures(self) -> list[SearchFailure]:
        """New ones, each once."""
        with self._lock:
            failures, self._failures = self._failures, []
            return failures

    def left_out(self) -> int:
        """Bytes that were not searched since this was last asked: there were too many at once."""
        with self._lock:
            lost, self._lost = self._lost, 0
            return lost

    def searched_until(self, now: float) -> float:
        """All text that came before that has been searched."""
        with self._lock:
            oldest = self._sent[0] if self._sent else self._waiting[0] if self._waiting else None
            return oldest.at if oldest else now

    def wait(self, seconds: float, *, below: int = 0) -> bool:
        """Until no more than so many bytes wait to be searched; False where that takes longer."""
        until = time.monotonic() + seconds
        while True:
            with self._lock:
                self._move()
                link = self._link
                if link is None or self._bytes <= below:
                    return True
                writing = [link] if self._part or self._waiting else []
            if (left := until - time.monotonic()) <= 0:
                return False
            with contextlib.suppress(OSError, ValueError):
                select.select([link], writing, [], min(left, 0.5))

    def close(self) -> None:
        with self._lock:
            self._end_process()
            self._current.close()
            os.close(self._page)

    # --- frames and answers --------------------------------------------------------------------

    def _put(self, stream: int, whole: bytes, at: float) -> None:
        while whole:
            piece = whole[:LARGEST_FRAME]
            if len(whole) > LARGEST_FRAME:
                cut = max(piece.rfind(b"\n"), piece.rfind(b"\r")) + 1
                piece = piece[: cut or LARGEST_FRAME]
            whole = whole[len(piece) :]
            number = self._lines.get(stream, 1)
            self._lines[stream] = number + piece.count(b"\n")
            if self._bytes + len(piece) > QUEUE:
                self._lost += len(piece)
                continue
            header = FRAME.pack(stream, number, at, len(piece))
            self._waiting.append(_Frame(at, len(piece), header + piece))
            self._bytes += len(piece)

    def _move(self) -> None:
        """All that can be sent and read now."""
        try:
            self._send()
            self._receive()
            self._send()
        except OSError:
            self._died()

    def _send(self) -> None:
        while self._link is not None and (self._part or self._waiting):
            if not self._part:
                frame = self._waiting.popleft()
                self._sent.append(frame)
                self._part = frame.data
            try:
                self._part = self._part[self._link.send(self._part) :]
            except BlockingIOError:
                return

    def _receive(self) -> None:
        while self._link is not None:
            try:
                chunk = self._link.recv(1 << 18)
            except BlockingIOError:
                return
            if not chunk:
                self._died()
                return
            *whole, self._answers = (self._answers + chunk).split(b"\n")
            for line in whole:
                self._take(json.loads(line))

    def _take(self, answer: dict[str, Any]) -> None:
        if "failed" in answer:
            self._without(int(answer["failed"]), str(answer["why"]))
            return
        self._bytes -= self._sent.popleft().size
        self._hits += [_hit(told) for told in answer["hits"]]

    # --- the process ---------------------------------------------------------------------------

    def _start(self) -> None:
        told = [{"index": i, **msgspec.structs.asdict(p)} for i, p in self._patterns.items()]
        settings = {"patterns": told, "apart": self._apart, "quoted": self._quoted}
        config = json.dumps(settings).encode() + b"\n"
        CURRENT.pack_into(self._current, 0, -1)
        command = [sys.executable, "-I", "-S", rule_worker.__file__]
        ours, theirs = socket.socketpair()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, NOT_FOR_IT)
        try:
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno()), str(self._page)],
                pass_fds=(theirs.fileno(), self._page),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
            )
        except OSError as problem:
            ours.close()
            self._give_up(f"their process cannot be started: {problem.strerror}")
            return
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
        ours.setblocking(False)
        self._link, self._answers = ours, b""
        # What was sent and not answered is sent again: an answer comes for a frame as a whole.
        again = [*self._sent, *self._waiting]
        self._sent.clear()
        self._waiting = deque(again)
        self._part = config

    def _died(self) -> None:
        index = CURRENT.unpack_from(self._current)[0]
        code = self._end_process()
        if code == -signal.SIGVTALRM and index in self._patterns:
            self._without(
                index, f"it took more than {BUDGET:g} s of processor time on a few lines of text"
            )
            return
        self._deaths += 1
        if self._deaths > STARTS:
            self._give_up(f"their process ended again and again (exit code {code})")
        else:
            self._start()

    def _without(self, index: int, why: str) -> None:
        self._end_process()
        self._patterns.pop(index, None)
        self._failures.append(SearchFailure(index, why))
        if self._patterns:
            self._start()
        else:
            self._drop_all()

    def _give_up(self, why: str) -> None:
        self._failures.append(SearchFailure(None, why))
        self._drop_all()

    def _drop_all(self) -> None:
        self._waiting.clear()
        self._sent.clear()
        self._held.clear()
        self._part, self._bytes = b"", 0

    def _end_process(self) -> int:
        if self._link is not None:
            self._link.close()
            self._link = None
        process, self._process = self._process, None
        if process is None:
            return 0
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(0.2)  # it ends when the connection does, or has ended already
        process.kill()
        return process.wait()


def _hit(told: dict[str, Any]) -> PatternHit:
    value = told.get("value", "")
    return PatternHit(
        pattern=told["rule"],
        stream=told["stream"],
        number=told["number"],
        at=told["at"],
        line=told["line"],
        start=told["start"],
        lines=told["count"],
        value=float(value) if value else None,
        beyond=bool(told.get("beyond")),
        not_a_number=told.get("text", ""),
    )
