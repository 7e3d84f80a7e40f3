"""The kernel's log (dmesg, journalctl, syslog): written from outside: the named process counts."""

from __future__ import annotations

import functools

from holdfast.analysis.logs.pattern import LogPattern, Role

_saw = functools.partial(LogPattern, role=Role.CONFIRMATION)

OOM_KILL = _saw(
    name="kernel: oom-kill",
    pattern=r"(?:Killed|Kill) process (?P<pid>\d+),? (?:\((?P<name>[^)]*)\)|UID \d+)",
    anchors=("Killed process ", "Kill process "),
    example="[12345.678901] Memory cgroup out of memory: Killed process 1011 (python) "
    "total-vm:24117248kB, anon-rss:16777216kB, file-rss:0kB, shmem-rss:0kB, UID:1000",
)
OOM_INVOKED = _saw(
    name="kernel: oom-invoked",
    pattern=r"(?<!\S)(?P<name>\S{1,64}) invoked oom-killer|oom-kill:constraint=(?P<constraint>\w+)"
    r"(?:.*task=(?P<task>[^,]+),pid=(?P<pid>\d+))?|Memory cgroup out of memory|Out of memory: Kill",
    anchors=(
        "invoked oom-killer",
        "oom-kill:constraint",
        "cgroup out of memory",
        "Out of memory: Kill",
    ),
    example="[12345.678] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed"
    "=0,oom_memcg=/job,task_memcg=/job,task=python,pid=1011,uid=1000",
)
XID = _saw(
    name="kernel: xid",
    pattern=r"\bXid \((?:PCI:)?(?P<pci>[0-9a-fA-F:.]+)[^)]*\):? (?P<number>\d+)\b"
    r"(?:, pid='?(?P<pid>\d+)'?)?(?:, name=(?P<name>[^,]+))?"
    r"(?:.{0,200}caused by previous Xid (?P<previous>\d+))?",
    anchors=("NVRM: Xid", "Xid (PCI"),
    example="Nov 15 01:02:03 vm kernel: NVRM: Xid (PCI:0000:3d:00): 79, pid=1011, name=python, "
    "GPU has fallen off the bus.",
)
SXID = _saw(
    name="kernel: sxid",
    pattern=r"SXid \(PCI:(?P<pci>[0-9a-fA-F:.]+)\): (?P<number>\d+)",
    anchors=("SXid (PCI",),
    example="[12345.678] nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 24007, Fatal, Link 55",
)
SOFT_LOCKUP = _saw(
    name="kernel: soft-lockup",
    pattern=r"soft lockup - CPU#(?P<cpu>\d+) stuck for (?P<seconds>\d+)s! \[(?P<name>[^\]]+):"
    r"(?P<pid>\d+)\]|soft lockup|hard LOCKUP|rcu_\w+ (?:self-)?detected stalls?",
    anchors=("soft lockup", "hard LOCKUP", "detected stall"),
    example="[12345.678] watchdog: BUG: soft lockup - CPU#7 stuck for 22s! [python:1011]",
)
HUNG_TASK = _saw(
    name="kernel: hung-task",
    pattern=r"task (?P<name>\S{1,64}):(?P<pid>\d+) blocked for more than (?P<seconds>\d+) seconds",
    anchors=("blocked for more than",),
    example="[12345.678] INFO: task python:1011 blocked for more than 120 seconds.",
)
SEGFAULT = _saw(
    name="kernel: segfault",
    pattern=r"(?<![^\s\[])(?P<name>[^\s\[]{1,64})\[(?P<pid>\d+)\]:? "
    r"(?P<what>segfault at|general protection|trap )"
    r"(?:.* in (?P<library>[^\s\[,]+))?",
    anchors=("]: segfault at ", "] general protection", "]: general protection", "] trap "),
    example="[12345.678] python[1011]: segfault at 28 ip 00007f2a3c0d1e2f sp 00007ffd2b1a0c50 "
    "error 4 in libnccl.so.2[7f2a3bf00000+5a00000]",
)

ALL: tuple[LogPattern, ...] = (
    OOM_KILL,
    OOM_INVOKED,
    XID,
    SXID,
    SOFT_LOCKUP,
    HUNG_TASK,
    SEGFAULT,
)
