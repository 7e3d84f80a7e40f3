"""The process of limited means in which strangers' dumps are read; see dumps.py.

Each request is a header and the dump's bytes, each answer a length and a `Recorder | Unread`.
"""

from __future__ import annotations

import contextlib
import gc
import resource
import struct
import sys

import msgspec

from holdfast.analysis.collectives import dump_file
from holdfast.analysis.machine import Unread
from holdfast.analysis.scene.scene import Recorder

REQUEST = struct.Struct("<QQ")
"""length of the dump, entries to keep of each group"""
ANSWER = struct.Struct("<Q")

MEMORY = 2 << 30
"""bytes of address space; a dump of 32 MiB needs a quarter of that"""
SECONDS = 3
"""of processor time for each dump; the usual one takes 6 ms, the largest allowed about 1 s"""


def main() -> int:
    _limit(resource.RLIMIT_AS, MEMORY)
    _limit(resource.RLIMIT_CORE, 0)
    gc.disable()  # a dump has no cycles, and looking for them takes as long as reading it
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    while header := requests.read(REQUEST.size):
        size, keep = REQUEST.unpack(header)
        answer = msgspec.msgpack.encode(_read(requests.read(size), keep))
        answers.write(ANSWER.pack(len(answer)) + answer)
        answers.flush()
    return 0


def _read(data: bytes, keep: int) -> Recorder | Unread:
    spent = resource.getrusage(resource.RUSAGE_SELF)
    _limit(resource.RLIMIT_CPU, int(spent.ru_utime + spent.ru_stime) + SECONDS)
    try:
        return dump_file.read(data, keep=keep)
    except ValueError as problem:
        return Unread(why=str(problem))
    except MemoryError:
        return Unread(why=f"reading it takes more than {MEMORY >> 30} GiB of memory")


def _limit(what: int, value: int) -> None:
    """The soft limit only, so that the time starts again for each dump."""
    _, hard = resource.getrlimit(what)
    within = value if hard == resource.RLIM_INFINITY else min(value, hard)
    with contextlib.suppress(ValueError, OSError):  # some systems do not limit address space
        resource.setrlimit(what, (within, hard))


if __name__ == "__main__":
    sys.exit(main())
