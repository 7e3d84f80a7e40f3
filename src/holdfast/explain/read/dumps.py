"""Flight-recorder files -> Recorder, however hostile the file.

They are read in processes that may use little memory and time and whose end is an answer as well,
two or more at once when there are many.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

import holdfast
from holdfast.analysis.collectives.dump_file import KEEP
from holdfast.analysis.machine import Unread
from holdfast.analysis.scene.scene import Recorder
from holdfast.explain.read.dump_worker import ANSWER, REQUEST, SECONDS
from holdfast.explain.read.sanitize import plain

LARGEST = 32 << 20
"""bytes; 2,000 entries, which torch keeps, are less than one MiB"""
_ENTRIES = 40_000
"""kept of each group in all dumps together"""
_FEWEST = 32

_NAMES = re.compile(r"(?:^|/)(?:\w*nccl_trace|comm_lib_trace)_rank_?\d+$")
"""as torch calls them when it is not told otherwise"""
_WORDS = re.compile(rb"profiling_name|pg_config|pg_status|comm_lib_version|nccl_comm_state")

Dump = tuple[str, Callable[[], bytes]]
"""its name, and how to get its bytes"""


def looks_like(peek: bytes, name: str) -> bool:
    """From its first bytes; a cut or empty dump is known by its name only."""
    if peek[:1] == b"\x80" and peek[1:2] in b"\x02\x03\x04\x05":
        return bool(_WORDS.search(peek)) or bool(_NAMES.search(name))
    if peek.lstrip()[:1] in (b"{", b"["):
        return bool(_WORDS.search(peek))
    return not peek and bool(_NAMES.search(name))


def read(name: str, data: bytes) -> Recorder | Unread:
    return read_all([(name, lambda: data)])[0]


def read_all(dumps: Sequence[Dump]) -> list[Recorder | Unread]:
    """In the order given; the bytes are fetched one dump after the other, and let go."""
    answers: list[Recorder | Unread] = [Unread(why="not read")] * len(dumps)
    keep = min(KEEP, max(_FEWEST, _ENTRIES // max(1, len(dumps))))
    waiting = iter(enumerate(dumps))
    turn = threading.Lock()

    def work() -> None:
        with _Worker() as worker:
            while True:
                with turn:  # the sources may all be members of one archive
                    number, dump = next(waiting, (-1, None))
                    if dump is None:
                        return
                    data = _fetch(dump)
                answers[number] = data if isinstance(data, Unread) else worker.read(data, keep)

    # A second process starts in the time that the first one takes for some ten dumps.
    count = min(len(os.sched_getaffinity(0)), 8, 1 + len(dumps) // 10)
    with ThreadPoolExecutor(count) as pool:
        for done in [pool.submit(work) for _ in range(count if dumps else 0)]:
            done.result()
    return answers


def _fetch(dump: Dump) -> bytes | Unread:
    name, fetch = dump
    try:
        data = fetch()
    except OSError as problem:
        return Unread(why=f"{plain(name)} could not be read: {problem.strerror or problem}")
    if not data:
        return Unread(why="empty: its process ended before writing it")
    if len(data) > LARGEST:
        return Unread(why=f"larger than {LARGEST >> 20} MiB, which no flight recorder writes")
    return data


# Isolated and without site: nothing of the user's is imported, and it starts in half the time.
_PROGRAM = (
    "import sys; sys.path += sys.argv[1:]; "
    "from holdfast.explain.read.dump_worker import main; sys.exit(main())"
)


class _Worker:
    """A process that reads one dump after the other; one that died is replaced by another."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *problem: object) -> None:
        self._end()

    def read(self, data: bytes, keep: int) -> Recorder | Unread:
        process = self._running()
        assert process.stdin
        assert process.stdout
        try:
            process.stdin.write(REQUEST.pack(len(data), keep))
            process.stdin.write(data)
            process.stdin.flush()
            size = process.stdout.read(ANSWER.size)
            answer = process.stdout.read(*ANSWER.unpack(size)) if len(size) == ANSWER.size else b""
        except BrokenPipeError:
            answer = b""
        if answer:
            told = msgspec.msgpack.decode(answer, type=Recorder | Unread)
            return Unread(why=plain(told.why)) if isinstance(told, Unread) else told
        self._end()
        return Unread(why=f"reading it crashed, or took more than {SECONDS} s: no recorder's dump")

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            homes = {os.path.dirname(os.path.dirname(os.path.abspath(module.__file__ or "")))
                     for module in (holdfast, msgspec)}  # fmt: skip
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _PROGRAM, *sorted(homes)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        return self._process

    def _end(self) -> None:
        if self._process is None:
            return
        process, self._process = self._process, None
        process.kill()
        with process:  # closes the pipes, and waits
            pass
