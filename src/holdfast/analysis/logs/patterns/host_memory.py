"""Log lines of a machine or cgroup without free memory, beyond the kernel's own."""

from __future__ import annotations

import functools

from holdfast.analysis.logs.pattern import LogPattern, Role

_pattern = functools.partial(LogPattern, slug="host-oom")

REFUSED = _pattern(
    name="host-oom: refused",
    pattern=r"DefaultCPUAllocator: (?:can't allocate memory|not enough memory)|\[Errno 12\] "
    r"|\bMemoryError\b|std::bad_alloc|numpy.*ArrayMemoryError"
    r"|Unable to allocate [\d.]+ [KMGTP]iB for an array"
    r"|(?:fork|unable to mmap .*): Cannot allocate memory"
    r"|NCCL WARN Failed to (?:malloc|CUDA host alloc) \d{1,20} bytes",
    anchors=(
        "DefaultCPUAllocator",
        "[Errno 12] ",
        "MemoryError",
        "std::bad_alloc",
        "Unable to allocate ",
        "annot allocate memory",
        "Failed to malloc ",
        "Failed to CUDA host alloc ",
    ),
    example="RuntimeError: [enforce fail at alloc_cpu.cpp:117] . DefaultCPUAllocator: can't "
    "allocate memory: you tried to allocate 68719476736 bytes. Error code 12 (Cannot allocate "
    "memory)",
)
OOM_DAEMON = _pattern(
    name="host-oom: daemon",
    pattern=r"killed by the OOM killer|with result 'oom-kill'|systemd-oomd.*[Kk]illed|TERM_MEMLIMIT"
    r"|earlyoom.*sending SIG\w+ to process (?P<pid>\d+)|State[:=] ?OUT_OF_ME"
    r"|node (?:was|is|running) low on (?:resource: )?memory|due to memory pressure \(OOM\)"
    r"|Memory on the node \(IP: .{1,100}\) where the|\bOOMKill(?:ing)?\b|\bSystemOOM\b"
    r"|\bexceeded (?:job |step |its |the )?memory limit\b|\bmem \d{1,20}\w{2} exceeded limit"
    r"|running beyond (?:physical|virtual) memory limits",
    anchors=(
        "OOM killer",
        "'oom-kill'",
        "systemd-oomd",
        "TERM_MEMLIMIT",
        "earlyoom",
        "OUT_OF_ME",
        "low on memory",
        "resource: memory",
        "memory pressure (OOM)",
        "Memory on the node (IP",
        "OOMKill",
        "SystemOOM",
        "memory limit",
        " exceeded limit",
    ),
    example="systemd[1]: job.service: A process of this unit has been killed by the OOM killer.",
    role=Role.CONFIRMATION,
)
ALL = (REFUSED, OOM_DAEMON)
