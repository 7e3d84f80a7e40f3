"""Within how many seconds `holdfast run` promises to name a fault."""

from __future__ import annotations

from holdfast.analysis.drill.injection import Injection
from holdfast.analysis.drill.rehearsal import Rehearsal

AFTER_DEATH = 5.0
"""a process has ended: its launcher is told by the kernel"""
WHEN_CERTAIN = 10.0
"""named without waiting for the patience to run out: nothing can end such a state"""
AFTER_PATIENCE = 10.0
"""beyond the patience: evidence is taken first"""
WHEN_SLOW = 60.0
"""beyond the patience: what is merely slow is named once enough steps were slow"""

_DEATHS = frozenset({
    "external-sigterm", "launcher-killed", "native-crash", "preempted", "python-exception",
    "rank-exits-early", "rank-killed", "sighup-terminal", "store-host-lost", "host-oom",
    "cuda-assert", "gpu-oom", "dataloader-killed", "fd-limit", "script-broken",
})  # fmt: skip
_CERTAIN = frozenset({"rank-frozen"})
_SLOW = frozenset({"slow-rank", "cpu-contention", "packet-loss", "clock-skew", "slow-nic"})


def slugs() -> frozenset[str]:
    """Of faults that have a bound of their own."""
    return _DEATHS | _CERTAIN | _SLOW


AT_START = 60.0
"""in addition, before the start: ranks must import torch and meet first"""


def notice_bound(injection: Injection, rehearsal: Rehearsal) -> float | None:
    """None for other launchers, which promise nothing."""
    if rehearsal.job.runner != "holdfast":
        return None
    if injection.notice_within is not None:
        return injection.notice_within
    usual = _usual(set(injection.slugs), rehearsal.job.patience)
    return usual if rehearsal.at_step else usual + AT_START


def _usual(slugs: set[str], patience: float) -> float:
    if slugs & _SLOW:
        return patience + WHEN_SLOW
    if slugs <= _DEATHS:
        return AFTER_DEATH
    if slugs <= _DEATHS | _CERTAIN:
        return WHEN_CERTAIN
    return patience + AFTER_PATIENCE
