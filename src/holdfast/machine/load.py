"""How busy this machine is, and who else keeps it busy."""

from __future__ import annotations

import os
import time
from typing import NamedTuple

from holdfast.facts import HostLoad, Plan, Process
from holdfast.probe.process import describe
from holdfast.probe.process_table import stat_of

WINDOW = 0.15
"""seconds: fifteen ticks of the kernel's process clock, enough to see half a core"""
BUSY = 0.5


class Sample(NamedTuple):
    started: int
    """with the pid, this names a process for good: pids are used again"""
    parent: int
    ticks: int
    """CPU time of all its threads"""
    when: float


def read_load(_plan: Plan) -> HostLoad:
    memory = memory_info()
    return HostLoad(
        cpus_online=os.sysconf("SC_NPROCESSORS_ONLN"),
        cpus_usable=len(os.sched_getaffinity(0)),
        load1=os.getloadavg()[0],
        memory_total=memory["MemTotal"],
        memory_available=memory["MemAvailable"],
        swap_total=memory["SwapTotal"],
        swap_used=memory["SwapTotal"] - memory["SwapFree"],
        # A reader runs in a child of holdfast: the parent, and all that descends from it,
        # is holdfast itself at work.
        busy=busy_processes(family=os.getppid()),
    )


def busy_processes(*, family: int, window: float = WINDOW) -> tuple[Process, ...]:
    """Processes that used more than half a core while we looked, the busiest first."""
    before = _samples()
    time.sleep(window)
    after = _samples()
    shares = {
        pid: _share(before[pid], now)
        for pid, now in after.items()
        if pid in before and before[pid].started == now.started
    }
    ours = _descendants(family, after) | {os.getpid()}
    busy = sorted(
        (pid for pid, share in shares.items() if share > BUSY and pid not in ours),
        key=lambda pid: -shares[pid],
    )
    return tuple(who for who in map(describe, busy) if isinstance(who, Process))


def memory_info() -> dict[str, int]:
    """/proc/meminfo in bytes."""
    with open("/proc/meminfo", encoding="ascii") as file:
        return parse_memory_info(file.read())


def parse_memory_info(text: str) -> dict[str, int]:
    found = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        words = value.split()
        if len(words) == 2 and words[0].isdecimal() and words[1] == "kB":
            found[name] = int(words[0]) * 1024
    return found


def parse_stat(text: str, when: float) -> Sample:
    """/proc/PID/stat; the name in brackets may hold blanks and brackets, so count after it."""
    fields = text.rpartition(")")[2].split()
    return Sample(
        started=int(fields[19]),
        parent=int(fields[1]),
        ticks=int(fields[11]) + int(fields[12]),
        when=when,
    )


def _samples() -> dict[int, Sample]:
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        if text := stat_of(int(name)):  # else it ended, or is hidden from this user
            found[int(name)] = parse_stat(text, time.monotonic())
    return found


def _share(before: Sample, now: Sample) -> float:
    """Of one core."""
    seconds = (now.ticks - before.ticks) / os.sysconf("SC_CLK_TCK")
    return seconds / max(now.when - before.when, 0.001)


def _descendants(pid: int, samples: dict[int, Sample]) -> set[int]:
    """The process and all that it started, directly or not."""
    family, grown = {pid}, True
    while grown:
        more = {child for child, sample in samples.items() if sample.parent in family} - family
        family |= more
        grown = bool(more)
    return family
