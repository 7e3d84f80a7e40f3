"""The launcher's side of the process that writes a run's folder (writer_process.py).

Everything is put into a queue of bounded size, and no call waits longer than it says: a file
system that hangs costs what does not fit into the queue, never the watch or the ranks' output.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from holdfast.run.runs import writer_process
from holdfast.run.runs.writer_process import Unframer, frame
from holdfast.text import duration, size

QUEUE = 32 << 20
"""bytes that wait for the disk; one message may be larger while no other waits"""
RESERVE = 16 << 20
"""and these for journal and evidence alone"""
TICK = 0.5
HUNG_TICKS = 10
"""of the thread without any answer to what was sent: the file system hangs. Counted in ticks: time
in which the launcher itself was stopped does not count"""
START_AGAIN = 5.0
"""seconds until a writer that ended, or could not be started, is started again"""
NOT_FOR_THE_WRITER = {
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2
}  # fmt: skip
LEFT_BEHIND: list[subprocess.Popen[bytes]] = []
"""writers that did not end when they were told to"""


class FolderNews(NamedTuple):
    hangs: bool
    """it does not answer; else it answers again"""
    sentence: str


Tell = Callable[[FolderNews], None]


class Refusal(NamedTuple):
    """Something could not be written."""

    why: str
    """'' if that was said before"""
    text: bytes
    """of a log: what was not written"""
    opened: bool
    """the file could be opened at least"""


Refused = Callable[[Refusal], None]


class _Message(NamedTuple):
    number: int
    what: str
    """'logs', 'journal lines' or 'evidence folders': for the sentence about what is missing"""
    data: bytes


class FolderWriter:
    """Any thread may call it."""

    def __init__(self, folder: str, *, tell: Tell, keep_open: Sequence[int] = ()) -> None:
        """`keep_open`: descriptors that the process is to have too, such as a lock."""
        self.folder = folder
        self._tell = tell
        self._keep_open = tuple(keep_open)
        self._lock = threading.Condition()
        self._queue: deque[_Message] = deque()
        self._sent: deque[_Message] = deque()
        self._bytes = self._number = self._done = 0
        self._gaps: Counter[str] = Counter()
        self._lost: Counter[str] = Counter()
        self._refused: dict[str, Refused] = {}
        self._hung_since: float | None = None
        self._late = self._closing = False
        self._ticks = 0
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_reader, False)
        os.set_blocking(self._wake_writer, False)
        self._thread = threading.Thread(target=self._run, name="holdfast-writer", daemon=True)
        self._thread.start()

    # --- what may be written -------------------------------------------------------------------

    def log(self, path: str, text: bytes, *, limit: int, elsewhere: str = "") -> None:
        """Append to a log; `elsewhere` is where it really is, and `path` a link to there.

        A disk that is only slower than the ranks print is waited for, as under torchrun; one that
        hangs is not."""
        with self._lock:
            missing = self._gaps[path]
            told = _gap(missing) if missing else b""
            header = {"op": "log", "path": path, "limit": limit, "elsewhere": elsewhere}
            data = frame(header, told + text)
            self._lock.wait_for(lambda: self.hangs or self._closing or self._has_room(len(data)))
            if self._put("logs", data, len(text)):
                del self._gaps[path]
            else:
                self._gaps[path] += len(text)

    def close_log(self, path: str) -> None:
        self._send("", {"op": "close", "path": path})

    def line(self, path: str, line: bytes) -> int:
        return self._send("journal lines", {"op": "line", "path": path}, line)

    def files(self, folder: str, files: dict[str, bytes]) -> int:
        """A folder with just these files; the number to `wait` for, 0 when it was not taken."""
        sizes = [(name, len(content)) for name, content in files.items()]
        header = {"op": "folder", "path": folder, "files": sizes}
        return self._send("evidence folders", header, b"".join(files.values()))

    def remove(self, folder: str) -> None:
        self._send("", {"op": "remove", "path": folder})

    def mirror(self, source: str) -> None:
        """From now on, copy what ranks write below `source`, on a local disk."""
        self._send("", {"op": "mirror_to", "path": self.folder, "source": source})

    def copy_now(self, *, done: str = "") -> int:
        """At once, instead of within a second; then remove the local folder `done`."""
        return self._send("", {"op": "copy_now", "path": self.folder, "done": done})

    def when_refused(self, path: str, call: Refused) -> None:
        """`call`, from another thread, when something could not be written there."""
        self._refused[path] = call

    # --- waiting -------------------------------------------------------------------------------

    @property
    def hangs(self) -> bool:
        return self._hung_since is not None

    @property
    def answers(self) -> bool:
        """It neither hangs nor is late: who reads there now will probably not wait."""
        return not (self.hangs or self._late)

    @property
    def number(self) -> int:
        """Of the last message, to `wait` for."""
        return self._number

    def wait(self, number: int, seconds: float) -> bool:
        """Whether everything up to that message has been dealt with; where the last wait was too
        short, or the disk hangs, it is not waited for again."""
        if not number:  # it was not taken
            return False
        with self._lock:
            if self._late or self.hangs or threading.current_thread() is self._thread:
                return self._done >= number
            done = self._lock.wait_for(lambda: self._done >= number, seconds)
            self._late = not done
            return done

    def flush(self, seconds: float) -> bool:
        with self._lock:
            number = self._number
            return self._lock.wait_for(lambda: self._done >= number, seconds)

    def close(self, seconds: float) -> str:
        """'' or what is not on the disk, and is lost now."""
        self._send("", {"op": "end", "path": self.folder})
        self.flush(0.0 if self.hangs else seconds)
        with self._lock:
            self._closing = True
            for message in (*self._queue, *self._sent):
                self._count(message.what, len(message.data))
            lost = _in_words(self._lost)
            self._lock.notify_all()
        self._wake()
        self._thread.join(timeout=TICK * 4)
        return f"not written to {self.folder}, which does not answer: {lost}" if lost else ""

    # --- the queue -----------------------------------------------------------------------------

    def _send(self, what: str, header: dict[str, Any], body: bytes = b"") -> int:
        with self._lock:
            return self._put(what, frame(header, body), len(body))

    def _put(self, what: str, data: bytes, length: int) -> int:
        if self._closing or not self._has_room(len(data), more=0 if what == "logs" else RESERVE):
            self._count(what, length)
            return 0
        self._number += 1
        self._bytes += len(data)
        idle = not self._queue
        self._queue.append(_Message(self._number, what, data))
        if idle:
            self._wake()
        return self._number

    def _has_room(self, length: int, *, more: int = 0) -> bool:
        return not self._bytes or self._bytes + length <= QUEUE + more

    def _count(self, what: str, length: int) -> None:
        if what:
            self._lost[what] += length if what == "logs" else 1

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # full: it wakes anyhow
            os.write(self._wake_writer, b"!")

    # --- the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closing:
            try:
                self._serve()
            except Exception:  # noqa: BLE001, PERF203 - it was killed, or could not be started
                with self._lock:
                    self._queue.extendleft(reversed(self._sent))
                    self._sent.clear()
                self._pause(START_AGAIN)
        os.close(self._wake_reader)
        os.close(self._wake_writer)

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self._closing and time.monotonic() < end:
            select.select([self._wake_reader], [], [], TICK)
            time.sleep(0.05)
            self._tick()

    def _serve(self) -> None:
        """One process, from its start to its end."""
        link, process = _start(self._keep_open)
        try:
            self._exchange(link)
        finally:
            link.close()
            try:
                process.wait(timeout=TICK * 2)
            except subprocess.TimeoutExpired:  # it hangs in the kernel
                LEFT_BEHIND.append(process)

    def _exchange(self, link: socket.socket) -> None:
        waiting, unframer, rest = select.poll(), Unframer(), memoryview(b"")
        waiting.register(self._wake_reader, select.POLLIN)
        answered, next_tick = self._done, 0.0
        while not self._closing:
            rest = rest or self._next()
            waiting.register(link, select.POLLIN | (select.POLLOUT if rest else 0))
            pending = bool(rest or self._sent)
            events = dict(waiting.poll(TICK * 1000 if pending else None))
            if self._wake_reader in events:
                os.read(self._wake_reader, 4096)
            if rest and events.get(link.fileno(), 0) & select.POLLOUT:
                rest = rest[link.send(rest) :]
            if events.get(link.fileno(), 0) & ~select.POLLOUT:
                chunk = link.recv(1 << 20)
                if not chunk:
                    raise ConnectionResetError
                for header, body in unframer.feed(chunk):
                    self._hear(header, body, answered)
            elif pending and time.monotonic() >= next_tick:
                self._tick()
                next_tick = time.monotonic() + TICK

    def _next(self) -> memoryview:
        """The bytes to send next; several messages at once, so that small ones are cheap."""
        with self._lock:
            taken: list[bytes] = []
            while self._queue and sum(map(len, taken)) < 1 << 16:
                message = self._queue.popleft()
                self._sent.append(message)
                taken.append(message.data)
        return memoryview(b"".join(taken))

    def _hear(self, header: dict[str, Any], body: bytes, answered: int) -> None:
        if "refused" in header:
            if call := self._refused.get(header["refused"]):
                call(Refusal(header["why"], body, header["opened"]))
            return
        with self._lock:
            self._done = answered + header["done"]
            while self._sent and self._sent[0].number <= self._done:
                self._bytes -= len(self._sent.popleft().data)
            self._ticks, self._late = 0, False
            since, self._hung_since = self._hung_since, None
            lost, self._lost = (_in_words(self._lost), Counter()) if since else ("", self._lost)
            self._lock.notify_all()
        if since is not None:
            told = f"lost meanwhile: {lost}" if lost else "nothing was lost"
            after = duration(time.monotonic() - since)
            sentence = f"{self.folder} answers again after {after}; {told}"
            self._tell(FolderNews(hangs=False, sentence=sentence))

    def _tick(self) -> None:
        if not (self._queue or self._sent):
            return
        self._ticks += 1
        if self._ticks == HUNG_TICKS:
            with self._lock:
                self._hung_since = time.monotonic() - HUNG_TICKS * TICK
                self._lock.notify_all()
            sentence = (
                f"{self.folder} does not answer (file system hangs?): training and monitoring "
                f"continue, up to {size(QUEUE)} wait in memory to be written"
            )
            self._tell(FolderNews(hangs=True, sentence=sentence))


def _start(keep_open: tuple[int, ...]) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    ours, theirs = socket.socketpair()
    with theirs:
        # It ends when the launcher has: Ctrl-C and a scheduler's SIGTERM are not for it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, NOT_FOR_THE_WRITER)
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", writer_process.__file__, str(theirs.fileno())],
                pass_fds=(theirs.fileno(), *keep_open),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
            )
        except OSError:
            ours.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    ours.setblocking(False)
    return ours, process


def _gap(length: int) -> bytes:
    told = f"[holdfast: {size(length)} of output are missing here: the disk did not answer]"
    return f"\n{told}\n".encode()


def _in_words(lost: Counter[str]) -> str:
    return ", ".join(
        f"{size(count)} of {what}" if what == "logs" else f"{count} {what}"
        for what, count in sorted(lost.items())
        if count
    )
