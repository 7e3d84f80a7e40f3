"""The one reader of /proc/PID: every process, its stat, status, environment and descriptors.

A process may end while it is read, and /proc may hide those of other users (hidepid): what a
function does then is part of its contract. A busy machine has thousands of processes and a rank
hundreds of threads, so files are read by plain system calls, which cost a third of open().
"""

from __future__ import annotations

import functools
import os
from typing import NamedTuple

GONE = (FileNotFoundError, ProcessLookupError)
"""what reading a process raises that has ended; ESRCH where the file was open already"""
LONGEST = 1 << 14
"""bytes of a file that `head` reads: more than any stat, io, comm or schedstat has"""

CHECKPOINT_WRITER = "holdfast-writer"
"""the name of the process that writes a rank's checkpoints, and finishes when the rank is gone"""

FIRST_PID_NAMESPACE = "pid:[4026531836]"
"""the machine's own: PROC_PID_INIT_INO in linux/proc_ns.h"""

_KERNEL_THREAD = 0x00200000
"""PF_KTHREAD in the kernel's include/linux/sched.h"""


def folder(pid: int | str) -> str:
    """Where /proc shows this process; a folder that does not exist where its numbers are not ours.

    `unshare --pid` and some sandboxes leave the /proc of the outer pid namespace in place: there
    our own number, and that of a rank, is another process, which must not be taken for it.
    """
    return f"/proc/{pid}" if counts_like_us(os.getpid()) else f"/proc/none/{pid}"


@functools.cache
def counts_like_us(pid: int) -> bool:
    """Whether /proc gives this very process the number that it has here."""
    return own_number() == str(pid)


def own_number() -> str:
    """Of this process in /proc; '' where there is none."""
    try:
        return os.readlink("/proc/self")
    except OSError:
        return ""


def pids() -> list[int]:
    """Every process that this user may see, in rising order; none where /proc cannot be read, or
    counts otherwise than we do."""
    if not counts_like_us(os.getpid()):
        return []
    try:
        return sorted(int(name) for name in os.listdir("/proc") if name.isdecimal())
    except OSError:
        return []


def is_restricted(visible: list[int]) -> bool:
    """/proc is mounted with hidepid=2: only the processes of this user are listed."""
    return 1 not in visible


def shows_whole_machine(root: str = "/") -> bool:
    """/proc lists the machine's processes, under its own numbers, not only those of a container."""
    try:
        return os.readlink(os.path.join(root, "proc/self/ns/pid")) == FIRST_PID_NAMESPACE
    except OSError:
        return False


# --- /proc/PID/stat -----------------------------------------------------------------------------


class ProcessRow(NamedTuple):
    """A process as /proc/PID/stat shows it to any user."""

    pid: int
    name: str
    """the kernel's short name, at most 15 characters"""
    state: str
    parent: int
    session: int
    is_kernel: bool
    major_faults: int
    ticks: int
    """CPU time of all its threads, in clock ticks"""
    threads: int
    started: int
    """clock ticks since boot; with the pid this names a process for good, pids are used again"""


def process_table() -> dict[int, ProcessRow]:
    """Every process that can be read, by pid."""
    return {row.pid: row for row in map(row_of, pids()) if row}


def row_of(pid: int) -> ProcessRow | None:
    """None when the process is gone, or hidden from this user."""
    try:
        return parse_stat(head(f"{folder(pid)}/stat").decode(errors="replace"))
    except OSError:
        return None


def parse_stat(stat: str) -> ProcessRow:
    """The name is in parentheses and may hold spaces and parentheses itself."""
    before, _, after = stat.rpartition(")")
    pid, _, name = before.partition("(")
    fields = after.split()
    return ProcessRow(
        pid=int(pid),
        name=name,
        state=fields[0],
        parent=int(fields[1]),
        session=int(fields[3]),
        is_kernel=bool(int(fields[6]) & _KERNEL_THREAD),
        major_faults=int(fields[9]),
        ticks=int(fields[11]) + int(fields[12]),
        threads=int(fields[17]),
        started=int(fields[19]),
    )


# --- other files of a process; they raise what the kernel raises --------------------------------


def status(pid: int) -> dict[str, str]:
    """/proc/PID/status: {'Uid': '1000\\t1000…', …}."""
    return parse_status(text(f"{folder(pid)}/status"))


def parse_status(content: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in content.splitlines())
    return {name: value.strip() for name, colon, value in pairs if colon}


def handles(pid: int, number: int) -> bool:
    """Whether it has a handler of its own for this signal; False when it is gone."""
    try:
        caught = int(status(pid).get("SigCgt", "0"), 16)
    except (OSError, ValueError):
        return False
    return bool(caught >> (number - 1) & 1)


def arguments(pid: int) -> list[str]:
    """Its command line; [''] for a kernel thread."""
    return text(f"{folder(pid)}/cmdline").rstrip("\0").split("\0")


def environment(pid: int, *, only_with: tuple[str, ...] = ()) -> dict[str, str]:
    """The environment it was started with; {} where it may not be read, or where none of the
    names in `only_with` occurs: taking thousands of them apart takes time."""
    try:
        with open(f"{folder(pid)}/environ", "rb") as file:
            content = file.read()
    except OSError:
        return {}
    if only_with and not any(name.encode() in content for name in only_with):
        return {}
    pairs = (item.partition("=") for item in content.decode(errors="replace").split("\0"))
    return {name: value for name, equals, value in pairs if equals}


def maps(pid: int) -> str:
    return text(f"{folder(pid)}/maps")


def open_files(pid: int) -> set[str]:
    """What its descriptors lead to: '/path', 'socket:[123]'.

    The links' own text: following them could hang on a dead file server.
    """
    where = f"{folder(pid)}/fd"
    return {_link(f"{where}/{name}") for name in os.listdir(where)} - {""}


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except GONE:  # closed meanwhile
        return ""


# --- files of the kernel ------------------------------------------------------------------------


def text(path: str) -> str:
    """A whole file of /proc, however long."""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def head(path: str) -> bytes:
    """A short file of /proc."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, LONGEST)
    finally:
        os.close(descriptor)


def head_or_empty(path: str) -> bytes:
    """b'' where the process ended, may not be read, or this kernel has no such file."""
    try:
        return head(path)
    except OSError:
        return b""
