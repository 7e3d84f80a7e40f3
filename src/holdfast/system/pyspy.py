"""Take the Python stack of a process from outside, with py-spy.

`--nonblocking` reads the process's memory without stopping it. The plain form stops it first,
which fails on one that is stopped already and would disturb a healthy one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable

import msgspec

import holdfast
from holdfast.analysis.machine import Unread
from holdfast.analysis.scene.scene import Frame, Stack
from holdfast.system import proc
from holdfast.system.activity import descendants

_OUR_FILES = os.path.dirname(os.path.abspath(holdfast.__file__)) + os.sep

MISSING = Unread(why="py-spy is not installed beside holdfast: pip install py-spy")
HIDDEN = Unread(why="/proc does not show this container's own processes: mount one inside it")

ATTEMPTS = 4
"""reading a process without stopping it may catch it in the middle of a call"""


class _Frame(msgspec.Struct):
    name: str
    filename: str
    line: int = 0


class _PySpyThread(msgspec.Struct):
    frames: list[_Frame]
    os_thread_id: int | None = None
    thread_name: str | None = None
    active: bool = False
    owns_gil: bool = False


def dump(pid: int, *, seconds: float = 2.0) -> Stack | Unread:
    """The stack of a process's main thread."""
    return dump_many([pid], seconds=seconds)[pid]


def dump_family(pid: int, *, seconds: float = 2.0) -> dict[int, Stack | Unread]:
    """The same of a process and all its descendants: loader workers, compilers…"""
    return dump_many([pid, *descendants(pid)], seconds=seconds)


def dump_many(pids: Iterable[int], *, seconds: float = 2.0) -> dict[int, Stack | Unread]:
    """The same of several processes, at once and within one deadline."""
    wanted = list(dict.fromkeys(pids))
    if not proc.counts_like_us(os.getpid()):
        return dict.fromkeys(wanted, HIDDEN)
    program = _program()
    if program is None:
        return dict.fromkeys(wanted, MISSING)
    end = time.monotonic() + seconds
    answers: dict[int, Stack | Unread] = {pid: HANGS for pid in wanted if _still_read(pid)}
    missed = [pid for pid in wanted if pid not in answers]
    for _ in range(ATTEMPTS):
        runs = {pid: _start(program, pid) for pid in missed}
        answers |= {pid: _answer(run, pid, end, seconds) for pid, run in runs.items()}
        missed = [pid for pid in missed if answers[pid] == _TORN]
        if not missed or time.monotonic() > end:
            break
    return answers


def _still_read(pid: int) -> bool:
    """One reader that hangs is enough: a rank may be in that state for days."""
    if pid in _hanging and _hanging[pid].poll() is not None:
        del _hanging[pid]
    return pid in _hanging


_hanging: dict[int, subprocess.Popen[bytes]] = {}
"""readers that even SIGKILL did not end, by the process they read"""
HANGS = Unread(why="an earlier py-spy still hangs in reading its memory (dead file server?)")
_TORN = Unread(why="it ran while its stack was read, and no reading was whole")


def _program() -> str | None:
    """Beside this interpreter first: its environment need not be on PATH."""
    beside = os.path.dirname(sys.executable)
    return shutil.which("py-spy", path=os.pathsep.join([beside, os.environ.get("PATH", "")]))


def _start(program: str, pid: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [program, "dump", "--nonblocking", "--json", "--pid", str(pid)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for the job, not for the evidence
        env={**os.environ, "RUST_BACKTRACE": "0"},
    )


def _answer(run: subprocess.Popen[bytes], pid: int, end: float, seconds: float) -> Stack | Unread:
    assert run.stdout is not None
    assert run.stderr is not None
    with run.stdout, run.stderr:
        try:
            output, errors = run.communicate(timeout=max(0.05, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            run.kill()
            # Reading a process whose memory is on a dead file server cannot even be killed:
            # then it is left behind.
            try:
                run.wait(timeout=0.2)
            except subprocess.TimeoutExpired:
                _hanging[pid] = run
            return Unread(why=f"py-spy did not finish within {seconds:g} s")
    if run.returncode != 0:
        return _why_not(errors.decode(errors="replace"), pid)
    return parse(output, pid)


def _why_not(errors: str, pid: int) -> Unread:
    lowered = errors.lower()
    if "permission denied" in lowered or "operation not permitted" in lowered:
        return Unread(
            why=f"not permitted to read the memory of process {pid}: run holdfast as the same "
            "user; in a container, start it with --cap-add=SYS_PTRACE"
        )
    if not os.path.exists(f"/proc/{pid}"):
        return Unread(why=f"process {pid} is gone")
    if "failed to find python version" in lowered:
        return Unread(why=f"process {pid} does not run Python, or is just starting")
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    if any(sign in lowered for sign in ("failed to copy", "bad address", "invalid frame")):
        return _TORN
    return Unread(why=f"py-spy failed: {lines[0] if lines else 'it said nothing'}")


def parse(document: bytes, pid: int) -> Stack | Unread:
    """The main thread in py-spy's JSON, without holdfast's own frames."""
    try:
        threads = msgspec.json.decode(document, type=list[_PySpyThread])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return Unread(why="py-spy's answer could not be read: is it version 0.4 or later?")
    for thread in threads:
        if thread.os_thread_id == pid:
            return _stack(thread)
    # Without that number (another pid namespace) the name must do; a script may change it.
    for thread in threads:
        if thread.thread_name == "MainThread":
            return _stack(thread)
    return _TORN


def _stack(thread: _PySpyThread) -> Stack:
    return Stack(
        frames=tuple(
            Frame(function=frame.name, file=frame.filename, line=frame.line)
            for frame in thread.frames
            if not frame.filename.startswith(_OUR_FILES)
        ),
        active=thread.active,
        holds_gil=thread.owns_gil,
    )
