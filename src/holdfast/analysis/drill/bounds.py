"""Within how many seconds `holdfast run` promises to name a fault."""

from __future__ import annotations

from holdfast.analysis.drill.injection import Injection
from holdfast.analysis.drill.rehearsal import JobShape

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


def notice_bound(injection: Injection, job: JobShape) -> float | None:
    """None for other launchers, which promise nothing."""
    if job.runner != "holdfast":
        return None
    if injection.notice_within is not None:
        return injection.notice_within
    slugs = set(injection.slugs)
    if slugs & _SLOW:
        return job.patience + WHEN_SLOW
    if slugs <= _DEATHS:
        return AFTER_DEATH
    if slugs <= _DEATHS | _CERTAIN:
        return WHEN_CERTAIN
    return job.patience + AFTER_PATIENCE
