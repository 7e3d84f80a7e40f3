"""Carries what the ranks print to the screen, unchanged, and into their log files.

A pipe, or a terminal where we have one, is between a rank and its log. A rank that wrote
into the file itself would get the error when the disk is full, and its next `print` would end
the training.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import selectors
import sys
import threading
import time
from collections.abc import Callable

from holdfast.run.launch import hand_over, terminal
from holdfast.run.launch.log_file import RankLog

LINE_DELAY = 0.05
"""seconds to wait for the end of a line, so that lines of several ranks do not mix"""
LONGEST_LINE = 1 << 16
PIPE_SIZE = 1 << 18
"""room for a burst, so that a rank does not wait for a slow terminal; 64 KiB is the default"""
LARGE_PIPES = 32
"""that get it, 8 MiB in all: past 64 MiB the kernel gives every program of this user tiny pipes"""
AFTER_A_BUG = 0.05
"""seconds to pause, so that a bug that comes back at once does not take a processor"""

Writer = Callable[[int, bytes], None]


def write_all(screen: int, text: bytes) -> None:
    while text:
        try:
            text = text[os.write(screen, text) :]
        except BlockingIOError:  # noqa: PERF203 - another program made our terminal non-blocking
            select.select([], [screen], [], 1.0)


class RankStream:
    """One output of one rank, and where it goes."""

    def __init__(
        self,
        name: str,
        *,
        screen: int,
        shown: bool = True,
        log: RankLog | None = None,
        prefix: bytes = b"",
        copies: tuple[RankLog, tuple[bytes, ...]] | None = None,
        heard: Callable[[bytes], None] = lambda _: None,
    ) -> None:
        """`copies`: a second log, and what a line must contain to be copied there. `heard` gets
        all that is printed."""
        self.name = name
        self.source = -1
        self.held_since: float | None = None
        self._screen = screen
        self._shown = shown
        self._log = log
        self._prefix = prefix
        self._copies = copies
        self._heard = heard
        self._held = b""
        self._at_line_start = True

    def take(self, text: bytes, write: Writer) -> None:
        self._heard(text)
        if self._log is not None:
            self._log.write(text)
        text = self._held + text
        cut = len(text) if len(text) > LONGEST_LINE else text.rfind(b"\n") + 1
        self._held = text[cut:]
        if cut:
            self._show(text[:cut], write)
            self.held_since = None
        if self._held and self.held_since is None:
            self.held_since = time.monotonic()

    def flush(self, write: Writer) -> None:
        """Show the line as far as it has come: a prompt, or a progress bar."""
        text, self._held, self.held_since = self._held, b"", None
        if text:
            self._show(text, write)

    def refused(self, text: bytes, write: Writer) -> None:
        """What the log did not take, in order: shown, if it was not anyhow."""
        if not self._shown:
            with contextlib.suppress(OSError):
                write(self._screen, text)

    def _show(self, text: bytes, write: Writer) -> None:
        shown = []
        for line in text.splitlines(keepends=True) if self._prefix or self._copies else [text]:
            header = self._prefix if self._at_line_start else b""
            self._at_line_start = line.endswith((b"\n", b"\r"))
            shown.append(header + line)
            if self._copies and any(needle in line for needle in self._copies[1]):
                self._copies[0].write(header + line)
        if self._shown:
            try:
                write(self._screen, b"".join(shown))
            except OSError:  # `| head` has seen enough; the log continues
                self._shown = False

    def leave_open(self) -> None:
        """A process that outlives us still writes to it."""
        hand_over.keep_reading(self.source, self._log.path if self._log else None)

    def close(self) -> None:
        os.close(self.source)
        if self._log is not None:
            self._log.close()


class OutputPump:
    """A thread that reads every rank's output until no process can write to it any more."""

    def __init__(self, *, write: Writer = write_all) -> None:
        self._write = write
        self._waiting = selectors.DefaultSelector()
        # Replaced as a whole: the thread iterates it while a new attempt's streams are opened.
        self._streams: tuple[RankStream, ...] = ()
        self._lock = threading.Lock()
        self._failed: set[str] = set()
        self._our_ends: list[int] = []
        self._sizes = terminal.TerminalSizes()
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_reader, False)
        self._waiting.register(self._wake_reader, selectors.EVENT_READ)
        self._quiet = threading.Event()
        self._closing = self._outlived = False
        self._thread = threading.Thread(target=self._run, name="holdfast-output", daemon=True)
        self._thread.start()

    def open(self, stream: RankStream, *, like: int | None = None) -> str:
        """The path by which this process opens the rank's end; call `started` when it has.

        `like`: the terminal that the rank is to believe it writes to.
        """
        stream.source, end = self._pair(like)
        os.set_blocking(stream.source, False)
        self._our_ends.append(end)
        with self._lock:
            self._streams = (*self._streams, stream)
        self._waiting.register(stream.source, selectors.EVENT_READ, stream)
        return f"/proc/self/fd/{end}"

    def _pair(self, like: int | None) -> tuple[int, int]:
        if like is not None:
            with contextlib.suppress(OSError):  # a container without /dev/pts, or all are taken
                ours, end = terminal.open_pair(like)
                self._sizes.follow(ours, like)
                return ours, end
        ours, end = os.pipe()
        if len(self._streams) < LARGE_PIPES:
            with contextlib.suppress(OSError):  # this user's pipes may hold no more together
                fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, PIPE_SIZE)
        return ours, end

    def started(self) -> None:
        """The ranks hold their ends now. Ours go, so that the last of theirs is the end."""
        while self._our_ends:
            os.close(self._our_ends.pop())

    def settle(self, *, seconds: float = 1.0) -> None:
        """Wait until all that was printed so far is out."""
        self._quiet.clear()
        os.write(self._wake_writer, b"!")
        self._quiet.wait(seconds)

    def close(self, *, outlived: bool = False) -> None:
        """What is in the pipes still comes out; a terminal that takes nothing is not awaited.

        `outlived`: processes that still hold their ends are to print on, into the log.
        """
        self._outlived = outlived
        self.started()
        self._sizes.close()
        self._closing = True
        os.write(self._wake_writer, b"!")
        self._thread.join(timeout=2.0)

    def _run(self) -> None:
        """Nothing else empties the ranks' pipes: this must not end before it is told to."""
        while True:
            try:
                if self._turn():
                    break
            except Exception as bug:  # noqa: BLE001
                self._own_up("the ranks", bug)
                if self._closing:
                    break
        for stream in self._streams:
            if self._outlived:
                self._guarded(stream, RankStream.leave_open)
            self._guarded(stream, self._end)
        self._waiting.close()
        os.close(self._wake_reader)
        os.close(self._wake_writer)

    def _turn(self) -> bool:
        """Wait for output, and carry it; True when this was the last turn."""
        closing = self._closing
        held = [stream for stream in self._streams if stream.held_since is not None]
        ready = self._waiting.select(0 if closing else LINE_DELAY if held else None)
        woken = [key for key, _ in ready if key.data is None]
        streams = [key.data for key, _ in ready if key.data is not None]
        for stream in streams:
            self._guarded(stream, self._read)
        now = time.monotonic()
        for stream in held:
            since = stream.held_since
            if since is not None and now - since >= LINE_DELAY:
                self._guarded(stream, lambda stream: stream.flush(self._write))
        if streams or not (closing or woken) or self._more():
            return False
        if not closing:
            self._answer()
        return closing

    def _more(self) -> bool:
        """Whether something came without an event: between the two ends of a terminal a
        kernel thread carries the bytes, and only a read waits for it."""
        return True in [self._guarded(stream, self._read) for stream in self._streams]

    def _answer(self) -> None:
        """The bell was woken, and nothing is left to read."""
        os.read(self._wake_reader, 4096)
        for stream in self._streams:
            self._guarded(stream, lambda stream: stream.flush(self._write))
        self._quiet.set()

    def _guarded(self, stream: RankStream, act: Callable[[RankStream], bool | None]) -> bool:
        """One stream's trouble is not the others'."""
        try:
            return bool(act(stream))
        except Exception as bug:  # noqa: BLE001
            self._own_up(stream.name, bug)
            return False

    def _own_up(self, who: str, bug: Exception) -> None:
        if who not in self._failed:
            self._failed.add(who)
            warn(f"the output of {who} is incomplete: {type(bug).__name__}: {bug}")
        time.sleep(AFTER_A_BUG)

    def _read(self, stream: RankStream) -> bool:
        """Whether there was something to read."""
        try:
            text = os.read(stream.source, 1 << 16)
        except BlockingIOError:
            return False
        except OSError as problem:
            if problem.errno != errno.EIO:
                raise
            text = b""  # a terminal says so when its other end is closed everywhere
        if text:
            stream.take(text, self._write)
        else:
            self._end(stream)
        return bool(text)

    def _end(self, stream: RankStream) -> None:
        with self._lock:
            self._streams = tuple(one for one in self._streams if one is not stream)
        self._waiting.unregister(stream.source)
        self._sizes.forget(stream.source)
        self._guarded(stream, lambda stream: stream.flush(self._write))
        stream.close()


def warn(sentence: str) -> None:
    """On stderr, in one piece; a closed stderr is no reason to stop."""
    with contextlib.suppress(OSError, ValueError):
        fresh = "\r\033[K" if sys.stderr.isatty() else ""  # the status line may be there
        sys.stderr.write(f"{fresh}holdfast> {sentence}\n")
        sys.stderr.flush()
