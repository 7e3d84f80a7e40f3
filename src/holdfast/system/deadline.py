"""Ask many questions at once, none of which may take longer than its deadline.

Each question runs in a forked child. A thread would not do: a thread stuck in an
uninterruptible system call (a dead NFS server, a hung driver) keeps the whole process from
ending, while a stuck child is simply left behind.
"""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, NoReturn, TypeVar

from holdfast.analysis.machine import Unread

T = TypeVar("T")
Question = Callable[[], bytes]
"""Runs in the child and returns its answer as bytes."""
NO_LONGER: Mapping[str, float] = {}
ALL_AT_ONCE: Mapping[str, str] = {}
DRIVER_SECONDS = 20.0
"""for a question to a vendor's driver: a healthy machine whose GPUs are not kept awake
(persistence mode) starts each of them for the look, one after the other"""

SLOW = 2.0
"""seconds after which a user wants to know what is waited for"""

_ends: float | None = None
"""in a child: when its answer must be there, by time.monotonic()"""


class _Child(NamedTuple):
    name: str
    pid: int
    pipe: int
    chunks: list[bytes]
    seconds: float


def say_nothing(_: object) -> None:
    """For callers without a screen."""


def ask_here(question: Callable[[], T]) -> T | Unread:
    """The answer of one that cannot hang, asked in this very process; `Unread` where it raises. No
    fact that a job can do without may keep it from starting."""
    try:
        return question()
    except Exception as problem:  # noqa: BLE001 - whatever it was: then it is not known
        return Unread(why=_words(problem))


def time_left(otherwise: float) -> float:
    """Seconds until the question that is being answered must be answered, for questions within
    it; a little is kept back for passing the answer on. `otherwise` outside of any."""
    return otherwise if _ends is None else max(0.1, 0.9 * (_ends - time.monotonic()))


def ask(
    questions: Mapping[str, Question],
    *,
    seconds: float,
    longer: Mapping[str, float] = NO_LONGER,
    after: Mapping[str, str] = ALL_AT_ONCE,
    when_slow: Callable[[list[str]], None] = say_nothing,
) -> dict[str, bytes | Unread]:
    """The answers by name; a question that hangs, raises or dies is `Unread` with the reason.
    Those named in `longer` have their own deadline, counted from here like all. One of `after` is
    asked when the other has been answered. `when_slow` hears once which are open after a while."""
    sys.stdout.flush()
    sys.stderr.flush()
    first = {
        later: earlier for later, earlier in after.items() if {later, earlier} <= questions.keys()
    }
    answers: dict[str, bytes | Unread] = {}
    with selectors.DefaultSelector() as waiting:

        def start(names: list[str], began: float) -> None:
            with _interrupts_held_back():
                for name in names:
                    child = _start(name, questions[name], longer.get(name, seconds), began)
                    if isinstance(child, _Child):
                        waiting.register(child.pipe, selectors.EVENT_READ, child)
                    else:
                        answered(name, child)

        def answered(name: str, answer: bytes | Unread) -> None:
            answers[name] = answer
            start([later for later, earlier in first.items() if earlier == name], began)

        began = time.monotonic()
        start([name for name in questions if name not in first], began)
        began = time.monotonic()  # on a busy machine the start itself takes time
        told = False
        while children := [key.data for key in waiting.get_map().values()]:
            if not told and time.monotonic() >= began + SLOW:
                told = True
                when_slow([child.name for child in children])
            end = began + min(*(child.seconds for child in children), math.inf if told else SLOW)
            for key, _ in waiting.select(max(0.0, end - time.monotonic())):
                child = key.data
                if chunk := os.read(child.pipe, 1 << 20):
                    child.chunks.append(chunk)
                else:
                    waiting.unregister(child.pipe)
                    answered(child.name, _conclude(child))
            for child in _overdue(waiting, began):
                waiting.unregister(child.pipe)
                answered(child.name, _abandon(child))
    return answers


def _overdue(waiting: selectors.BaseSelector, began: float) -> list[_Child]:
    children = [key.data for key in waiting.get_map().values()]
    return [child for child in children if began + child.seconds <= time.monotonic()]


@contextlib.contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Python swallows a Ctrl-C that arrives while its own hooks around fork() run."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start(name: str, question: Question, seconds: float, began: float) -> _Child | Unread:
    """The limits that we look for may strike us as well: EMFILE, EAGAIN, ENOMEM."""
    try:
        read_end, write_end = os.pipe()
    except OSError as refusal:
        return Unread(why=f"could not start its reader: {_words(refusal)}")
    try:
        pid = os.fork()
    except OSError as refusal:
        os.close(read_end)
        os.close(write_end)
        return Unread(why=f"could not start its reader: {_words(refusal)}")
    if pid == 0:
        os.close(read_end)
        _answer(question, write_end, seconds, began)
    os.close(write_end)
    return _Child(name, pid, read_end, [], seconds)


def _answer(question: Question, pipe: int, seconds: float, began: float) -> NoReturn:
    """In the child: answer and leave without running the parent's exit handlers."""
    global _ends  # noqa: PLW0603 - this process answers one question and ends
    _ends = began + seconds
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds + 1)  # should the parent be killed meanwhile
    _leave_output(pipe)
    try:
        payload = b"+" + question()
    except BaseException as problem:  # noqa: BLE001 - whatever it was, the parent must hear of it
        payload = b"-" + _words(problem).encode(errors="replace")
    try:
        with open(pipe, "wb") as out:
            out.write(payload)
    finally:
        os._exit(0)


def _leave_output(pipe: int) -> None:
    """A reader of our output waits until no process is left that could write to it: a child that is
    stuck in a driver for ever must not be one."""
    null = os.open(os.devnull, os.O_WRONLY)
    for standard in (1, 2):
        if standard != pipe:  # which it may be where we were started without them
            os.dup2(null, standard)


def _words(problem: BaseException) -> str:
    """The kernel's words for its refusals; anything else is our own mistake: by its name."""
    if isinstance(problem, OSError):
        where = f": {problem.filename}" if problem.filename else ""
        return f"{problem.strerror}{where}" if problem.strerror else str(problem)
    return f"{type(problem).__name__}: {problem}"


def _conclude(child: _Child) -> bytes | Unread:
    os.close(child.pipe)
    _, status = os.waitpid(child.pid, 0)
    payload = b"".join(child.chunks)
    if payload[:1] == b"+":
        return payload[1:]
    if payload[:1] == b"-":
        return Unread(why=payload[1:].decode(errors="replace"))
    code = os.waitstatus_to_exitcode(status)
    if code == -signal.SIGALRM:  # its own alarm was quicker than we on a busy machine
        return _no_answer(child.seconds)
    how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return Unread(why=f"its reader died ({how}) without an answer")


def _abandon(child: _Child) -> Unread:
    """End the child if it can be ended; one stuck in the kernel is left to itself."""
    os.close(child.pipe)
    os.kill(child.pid, signal.SIGKILL)
    until = time.monotonic() + 0.05
    while os.waitpid(child.pid, os.WNOHANG) == (0, 0) and time.monotonic() < until:
        time.sleep(0.001)
    return _no_answer(child.seconds)


def _no_answer(seconds: float) -> Unread:
    shown = round(seconds, 1 if seconds > 1 else 3)
    return Unread(why=f"no answer within {shown:g} s", timed_out=True)
