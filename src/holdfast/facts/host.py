"""Where we run: container, cgroup, load, security, clock, kernel log."""

from __future__ import annotations

from holdfast.facts.base import Fact, Unread
from holdfast.facts.processes import Process


class Container(Fact, frozen=True):
    kind: str
    """'' for no container; 'docker', 'podman', 'kubernetes', 'apptainer', 'lxc', 'other'"""
    sign: str
    """what told us"""
    rootless: bool | None
    network: str
    """'host', 'own' or 'unknown'"""
    ipc: str
    """'host', 'own' or 'unknown'"""


class Cgroup(Fact, frozen=True):
    version: int
    path: str
    cpu_quota: float | None
    """cores; None means no quota"""
    throttled_share: float | None
    """share of scheduler periods in which the quota ran out, since the cgroup was made"""
    memory_limit: int | None
    memory_used: int | None
    oom_kills: int | None
    """since the cgroup was made"""
    memory_pressure: float | None
    """PSI 'some avg60' in per cent"""
    cpu_pressure: float | None


class HostLoad(Fact, frozen=True):
    cpus_online: int
    cpus_usable: int
    """by this process's affinity"""
    load1: float
    memory_total: int
    memory_available: int
    swap_total: int
    swap_used: int
    busy: tuple[Process, ...]
    """other processes that used more than half a core while we looked"""


class Security(Fact, frozen=True):
    selinux: str
    """'enforcing', 'permissive', 'disabled', 'absent', or 'active' when the mode is hidden"""
    denials: tuple[str, ...] | Unread
    """recent AVC lines that name python, torch or a container"""
    firewall: str
    """'none seen', 'nftables: 3 tables', 'firewalld active'… what could be read"""
    rules: int | Unread
    """number of filter rules, where we may read them"""


class ClockSync(Fact, frozen=True):
    synchronised: bool
    max_error: float
    """seconds, the kernel's own bound"""


class KernelEvent(Fact, frozen=True):
    kind: str
    """'xid', 'oom' or 'stall'"""
    text: str
    seconds_ago: float | None
