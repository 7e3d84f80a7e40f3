"""How busy this machine is, and who else keeps it busy."""

from __future__ import annotations

import os
import time

from holdfast.analysis.machine import HostLoad, Plan, Process
from holdfast.system import cpu_use
from holdfast.system.process import describe

WINDOW = 0.15
"""seconds: fifteen ticks of the kernel's process clock, enough to see half a core"""
BUSY = 0.5


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
    before = cpu_use.samples()
    time.sleep(window)
    after = cpu_use.samples()
    busy = cpu_use.strangers(before, after, family=family, above=BUSY)
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
