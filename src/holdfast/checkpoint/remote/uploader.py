"""The process that uploads: an object store's library has threads and an event loop of its own,
which a rank must not have to live with.

    stdin    one UploadOrder a line        stdout   one UploadAnswer a line

It ends with its rank: an upload that is under way when stdin closes is given up, and continued
by the next job's, which leaves alone what is there already.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading

import msgspec

from holdfast.checkpoint.remote.remote_folder import RemoteFolder
from holdfast.errors import Error


class UploadOrder(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    """a committed checkpoint"""
    keep: int
    keep_every: int | None = None


class UploadAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Signs of life (`moved`), and one at the end."""

    path: str = ""
    moved: int = 0
    """bytes since the last answer: a sign of life"""
    problem: str = ""
    done: bool = False


def _answer(answer: UploadAnswer) -> None:
    text = memoryview(msgspec.json.encode(answer) + b"\n")
    while text:
        text = text[os.write(1, text) :]


def _end_with_the_rank() -> None:
    """In a thread: a network that does not answer must not keep us. A forked child of the rank may
    hold the pipe open after it, so the parent is looked at as well."""
    rank, poll = os.getppid(), select.poll()
    poll.register(0, 0)  # POLLHUP is always reported
    while not poll.poll(1000) and os.getppid() == rank:
        pass
    os._exit(1)


def _carry_out(there: RemoteFolder, order: UploadOrder) -> None:
    def progress(size: int) -> None:
        _answer(UploadAnswer(path=order.path, moved=size))

    try:
        there.upload(order.path, progress)
        there.retain(order.keep, order.keep_every)
        _answer(UploadAnswer(path=order.path, done=True))
    except FileNotFoundError:  # retention was faster, so a newer one will come
        _answer(UploadAnswer(path=order.path, done=True, problem="it was removed meanwhile"))
    except (Error, OSError, msgspec.DecodeError) as problem:
        sentence = problem.sentence if isinstance(problem, Error) else str(problem)
        _answer(UploadAnswer(path=order.path, done=True, problem=sentence))


def main() -> int:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # they are for the rank, which decides
    threading.Thread(target=_end_with_the_rank, daemon=True).start()
    there = RemoteFolder(sys.argv[1])
    try:
        for line in sys.stdin.buffer:
            _carry_out(there, msgspec.json.decode(line, type=UploadOrder))
    except BrokenPipeError:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
