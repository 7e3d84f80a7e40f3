"""What the kernel log says about given processes and about GPUs, from a moment on.

The kernel names a *thread* where it speaks of a crash or a hung task, and counts in the first
pid namespace: inside a container with its own numbers pid 4711 is another one.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterator, Mapping

from holdfast.analysis.logs.patterns import kernel
from holdfast.analysis.machine import Unread
from holdfast.analysis.scene.gpu import GpuEvent
from holdfast.system import proc
from holdfast.text import shorten

RECORD = 1 << 14
"""bytes: a record has 8 KiB at most, and a smaller buffer is refused (EINVAL)"""
KEPT = 200
LONGEST = 300
LONGEST_NUMBER = 9
"""digits of a pid or an Xid"""

_NUMBER = re.compile(
    # mm/oom_kill.c; "Out of memory: " or "Memory cgroup out of memory: " comes before
    r"Killed process (?P<oom>\d+)"
    # arch/*/mm/fault.c: python[123]: segfault at 0 ip …; arm64: python[123]: unhandled exception
    r"|\[(?P<crash>\d+)\]: (?:segfault|unhandled|bad frame)"
    # arch/x86/kernel/traps.c: traps: python[123] trap invalid opcode ip:…
    r"|^traps: .*?\[(?P<trap>\d+)\]"
    # kernel/hung_task.c: INFO: task python:123 blocked for more than 122 seconds.
    r"|^INFO: task .*:(?P<hung>\d+) blocked for more than"
    # NVIDIA's driver: NVRM: Xid (PCI:0000:3b:00): 31, pid=123, name=python, …
    r"|^NVRM: Xid .*\bpid='?(?P<xid>\d+)"
)


class KernelLog:
    """Everything since it was opened, or since `forget`. Reading never waits."""

    def __init__(self, path: str = "/dev/kmsg", *, namespace: str = "/proc/self/ns/pid") -> None:
        self._kept: deque[tuple[int, str]] = deque(maxlen=KEPT)
        self._gpus: deque[GpuEvent] = deque(maxlen=KEPT)
        self._ring = -1
        self._why = ""
        self._other_numbers = ""
        """why its pids are not ours"""
        try:
            if os.readlink(namespace) != proc.FIRST_PID_NAMESPACE:
                self._other_numbers = "it counts processes otherwise than this container does"
            self._ring = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._ring, 0, os.SEEK_END)
        except PermissionError:
            self._why = "not by this user (dmesg_restrict)"
        except FileNotFoundError:
            self._why = f"there is no {path}"
        except OSError as problem:
            self._why = f"{path}: {problem.strerror}"

    def forget(self) -> None:
        """From now on."""
        self._read()
        self._kept.clear()
        self._gpus.clear()

    def about(self, owners: Mapping[int, int]) -> tuple[str, ...] | Unread:
        """The lines that name one of these threads or processes (number -> its process), oldest
        first; a thread's line also says whose it is."""
        self._read()
        if why := self._why or self._other_numbers:
            return Unread(why=f"kernel log not readable: {why}")
        return tuple(
            text if owners[number] == number else f"{text} (a thread of pid {owners[number]})"
            for number, text in self._kept
            if number in owners
        )

    def of_gpus(self) -> tuple[GpuEvent, ...] | Unread:
        """What NVIDIA's driver wrote of GPUs and NVSwitches, oldest first; it names them by their
        bus id, which also means the same inside a container."""
        self._read()
        if self._why:
            return Unread(why=f"kernel log not readable: {self._why}")
        return tuple(self._gpus)

    def close(self) -> None:
        if self._ring >= 0:
            os.close(self._ring)
            self._ring = -1

    def _read(self) -> None:
        if self._ring < 0:
            return
        try:
            for record in self._records():
                if found := parse(record):
                    self._kept.append(found)
                if event := parse_gpu(record, pids_are_ours=not self._other_numbers):
                    self._gpus.append(event)
        except OSError as problem:
            self._why = str(problem.strerror)

    def _records(self) -> Iterator[str]:
        """Each read gives one; 'would block' is the end."""
        while True:
            try:
                record = os.read(self._ring, RECORD)
            except BlockingIOError:
                return
            except BrokenPipeError:
                continue  # overwritten before we read it: the next read continues after it
            if not record:
                return
            yield record.decode(errors="replace")


def parse(record: str) -> tuple[int, str] | None:
    """The number and the text of a kmsg record ('priority,sequence,microseconds,flags;text');
    None for a line that is not about the end or hang of a process."""
    text = _kernels_own(record)
    found = _NUMBER.search(text)
    if found is None:
        return None
    number = int(next(group for group in found.groups() if group is not None))
    return number, _plain(text)


def parse_gpu(record: str, *, pids_are_ours: bool = True) -> GpuEvent | None:
    """The Xid or SXid of a kmsg record; None for any other line."""
    text = _kernels_own(record)
    switch = kernel.SXID.regex.search(text)
    found = switch or kernel.XID.regex.search(text)
    if found is None or len(found["number"]) > LONGEST_NUMBER:
        return None
    named = found.groupdict()
    pid = named.get("pid") or ""
    return GpuEvent(
        # A clean-up (45) names what it followed.
        number=int(named.get("previous") or found["number"]),
        bus_id=found["pci"],
        line=_plain(text),
        pid=int(pid) if pid and pids_are_ours and len(pid) <= LONGEST_NUMBER else None,
        switch=switch is not None,
    )


def _kernels_own(record: str) -> str:
    """The text of a record. Any program may write to the log what it likes; the kernel's own
    facility is 0, so that priority (facility * 8 + level) is below 8."""
    head, separator, rest = record.partition(";")
    return rest.partition("\n")[0] if separator and re.match(r"[0-7],", head) else ""


def _plain(text: str) -> str:
    return shorten("".join(c if c.isprintable() else " " for c in text).strip(), LONGEST)
