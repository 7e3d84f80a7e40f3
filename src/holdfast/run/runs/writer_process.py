"""The process that writes a run's folder, so that the launcher never touches its file system.

A file server that is gone blocks every process that writes there, and not even SIGKILL ends it:
then this process hangs, and the launcher continues, ends in time and leaves it behind. If the
launcher is killed, this process still writes all it was sent, copies what the ranks left, and ends.

It is started by its path, isolated and without site-packages (folder_writer.py): the standard
library only. A message is two lengths, a JSON header and a body; so is an answer.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import socket
import stat
import struct
import sys
import time
from collections import deque
from typing import Any

LENGTHS = struct.Struct(">II")
COPY_EVERY = 1.0
"""seconds between two looks at what the ranks wrote on the local disk"""
LOG_LIMIT = 64 << 20
"""a log that grows past this starts a new file; the first part and the one before are kept"""
KEPT = 1000
"""lines kept in memory while the disk takes none"""
UNFINISHED = ".part"
"""how the name of a file ends while a rank still writes it"""


def frame(header: dict[str, Any], body: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return LENGTHS.pack(len(text), len(body)) + text + body


class Unframer:
    """Messages from a stream of bytes, whatever pieces it comes in."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, chunk: bytes) -> list[tuple[dict[str, Any], bytes]]:
        self._bytes += chunk
        found, place = [], 0
        while len(self._bytes) - place >= LENGTHS.size:
            head, body = LENGTHS.unpack_from(self._bytes, place)
            begin = place + LENGTHS.size
            if len(self._bytes) < begin + head + body:
                break
            header = json.loads(bytes(self._bytes[begin : begin + head]))
            found.append((header, bytes(self._bytes[begin + head : begin + head + body])))
            place = begin + head + body
        del self._bytes[:place]
        return found


class LogFile:
    """One log, appended to and never overwritten, of at most three times the limit (0: none)."""

    def __init__(self, path: str, *, limit: int = LOG_LIMIT) -> None:
        self.path = path
        self._limit = limit
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 - closed by its owner
        self._size = self._file.tell()

    def write(self, text: bytes) -> None:
        if self._limit and self._size >= self._limit:
            self._turn_over()
        self._size += len(text)
        while text:
            text = text[self._file.write(text) :]

    def _turn_over(self) -> None:
        """The start says how the job was set up, the end why it died; the middle goes."""
        self._file.close()
        base, ending = os.path.splitext(self.path)
        first = f"{base}.first{ending}"
        os.replace(self.path, f"{base}.previous{ending}" if os.path.exists(first) else first)
        self._file = open(self.path, "ab", buffering=0)  # noqa: SIM115
        self._size = 0

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()


class LineFile:
    """Whole lines, appended; those that the disk does not take wait for the next one."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.waiting: deque[bytes] = deque(maxlen=KEPT)
        self._file = -1
        self._torn = False

    def write(self, line: bytes) -> None:
        """Raises OSError or ValueError when it, or one before, could not be written."""
        self.waiting.append(line)
        if self._file < 0:
            self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            self._torn = _ends_torn(self.path)
        while self.waiting:
            self._append(self.waiting[0])
            self.waiting.popleft()

    def _append(self, line: bytes) -> None:
        """One write() a line: the kernel appends it in one piece, beside any other writer."""
        # A disk that fills up takes the first half of a line: the next one starts afresh.
        whole = b"\n" + line if self._torn else line
        written = os.write(self._file, whole)
        self._torn = self._torn if written == 0 else written < len(whole)
        if written < len(whole):
            raise OSError("only a part of the line was taken, as by a full disk")

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _ends_torn(path: str) -> bool:
    """Whether the last line has no end yet; a new file has no such line."""
    with open(path, "rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


class Mirror:
    """Copies what ranks write into a local folder (last words, events, recorders) to the run's."""

    def __init__(self, source: str, target: str) -> None:
        self.source, self.target = source, target
        self._copied: dict[str, tuple[int, int]] = {}

    def copy(self) -> None:
        """What is new or has grown; OSError where the run's folder takes nothing."""
        for where, _, names in os.walk(self.source):
            for name in names:
                path = os.path.join(where, name)
                with contextlib.suppress(FileNotFoundError):  # renamed meanwhile: next time
                    seen = os.lstat(path)
                    if not stat.S_ISREG(seen.st_mode) or name.endswith(UNFINISHED):
                        continue
                    now = (seen.st_mtime_ns, seen.st_size)
                    if seen.st_size and self._copied.get(path) != now:
                        self._copy(path)
                        self._copied[path] = now

    def _copy(self, path: str) -> None:
        target = os.path.join(self.target, os.path.relpath(path, self.source))
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copyfile(path, f"{target}{UNFINISHED}")
        os.replace(f"{target}{UNFINISHED}", target)


class Desk:
    """Does what the messages say."""

    def __init__(self) -> None:
        self._logs: dict[str, LogFile | None] = {}
        self._lines: dict[str, LineFile] = {}
        self._mirror: Mirror | None = None

    def do(self, header: dict[str, Any], body: bytes) -> list[bytes]:
        """The answers: why something could not be written, with the text of a log that was not."""
        try:
            return getattr(self, "_" + header["op"])(header, body) or []
        except (OSError, ValueError) as problem:
            return [_refusal(header["path"], problem, b"")]

    def copy(self) -> None:
        if self._mirror is not None:
            with contextlib.suppress(OSError):
                self._mirror.copy()

    def copy_last(self) -> None:
        self.copy()
        if self._mirror is not None and os.path.isdir(self._mirror.source):
            time.sleep(COPY_EVERY)  # what ranks write while they end
            self.copy()
            with contextlib.suppress(OSError):  # so that the time of its death is known
                os.utime(self._mirror.target)

    def _log(self, header: dict[str, Any], body: bytes) -> list[bytes]:
        path = header["path"]
        try:
            if path not in self._logs:
                self._logs[path] = None
                self._logs[path] = self._open_log(header)
            log = self._logs[path]
            if log is None:  # refused before
                return [_refusal(path, None, body)]
            log.write(body)
        except OSError as problem:
            log = self._logs[path]
            if log is not None:
                log.close()
                self._logs[path] = None
            return [_refusal(path, problem, body, opened=log is not None)]
        return []

    def _open_log(self, header: dict[str, Any]) -> LogFile:
        path, elsewhere = header["path"], header.get("elsewhere")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if elsewhere and not os.path.lexists(path):
            os.makedirs(os.path.dirname(elsewhere), exist_ok=True)
            os.symlink(elsewhere, path)
        return LogFile(os.path.realpath(path), limit=header["limit"])

    def _close(self, header: dict[str, Any], _: bytes) -> None:
        log = self._logs.pop(header["path"], None)
        if log is not None:
            log.close()

    def _line(self, header: dict[str, Any], body: bytes) -> None:
        path = header["path"]
        self._lines.setdefault(path, LineFile(path)).write(body)

    def _folder(self, header: dict[str, Any], body: bytes) -> None:
        """A folder with these files and no other: one that is there already is replaced."""
        shutil.rmtree(header["path"], ignore_errors=True)
        os.makedirs(header["path"])
        place = 0
        for name, length in header["files"]:
            with open(os.path.join(header["path"], name), "wb") as file:
                file.write(body[place : place + length])
            place += length

    def _remove(self, header: dict[str, Any], _: bytes) -> None:
        shutil.rmtree(header["path"], ignore_errors=True)

    def _mirror_to(self, header: dict[str, Any], _: bytes) -> None:
        self._mirror = Mirror(header["source"], header["path"])

    def _copy_now(self, header: dict[str, Any], _: bytes) -> None:
        """`done`: a folder below the source that no rank writes any more."""
        if self._mirror is not None:
            self._mirror.copy()
        if header.get("done"):
            shutil.rmtree(header["done"], ignore_errors=True)

    def _end(self, _: dict[str, Any], __: bytes) -> None:
        """The launcher ends as it should: its ranks have gone."""
        mirror, self._mirror = self._mirror, None
        if mirror is not None:
            mirror.copy()


def _refusal(path: str, problem: Exception | None, body: bytes, *, opened: bool = True) -> bytes:
    why = (getattr(problem, "strerror", None) or str(problem)) if problem else ""
    return frame({"refused": path, "why": why, "opened": opened}, body)


def main(link: socket.socket) -> None:
    desk, unframer, done = Desk(), Unframer(), 0
    while True:
        if not select.select([link], [], [], COPY_EVERY)[0]:
            desk.copy()
            continue
        chunk = b""
        with contextlib.suppress(ConnectionResetError):  # killed before it read our answers
            chunk = link.recv(1 << 20)
        if not chunk:  # the launcher has ended, or was killed, and its ranks end with it
            desk.copy_last()
            return
        answers: list[bytes] = []
        for header, body in unframer.feed(chunk):
            answers += desk.do(header, body)
            done += 1
            answers.append(frame({"done": done}))
        with contextlib.suppress(OSError):  # it was killed; what it sent is still written
            link.sendall(b"".join(answers))


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
