"""THE VERDICT: every fault looks at the scene, and the best-founded answer is taken. Pure.

Certain before notice; somebody to name before nobody; then the order below: what ended a rank,
ranks that cannot meet, ranks that do not run, ranks that are merely late.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast import catalogue, endings
from holdfast.job import habit
from holdfast.model import Verdict
from holdfast.signals import Scene

ORDER = (
    # told to stop
    "sighup-terminal",
    "external-sigterm",
    # an end: what is known more closely comes before the mere fact
    "host-oom",
    "dataloader-killed",
    "gpu-oom",
    "disk-full",
    "native-crash",
    "rank-killed",
    "python-exception",
    # ranks that can never meet
    "uneven-inputs",
    "collective-mismatch",
    "rank-exits-early",
    "rank-frozen",
    "rank-conditional-code",
    # ranks that are late
    "limit-exceeded",
    "gil-held",
    "driver-hang",
    "slow-rank-timeout",
    "ranks-missing",
    "rank-stuck",
    "slow-rank",
)
NEEDS_A_STALL = frozenset(
    {"rank-conditional-code", "gil-held", "driver-hang", "slow-rank-timeout", "ranks-missing"}
    | {"rank-stuck", "rank-exits-early"}
)
"""read from positions, which in a running job are torn and change by the millisecond"""
NEEDS_NO_STALL = "slow-rank"
"""a rank is slow while steps go on; when nothing goes on it is something else"""


def judge(scene: Scene, *, clocks_since: float = 0.0) -> Verdict | None:
    """What holds the job up, if anything does. Never raises."""
    broken = bool(endings.endings(scene))
    still = broken or habit.stalled(scene, clocks_since=clocks_since)
    heard = [
        verdict
        for verdict in _ask(scene)
        if (still or verdict.slug not in NEEDS_A_STALL)
        and not (still and verdict.slug == NEEDS_NO_STALL)
    ]
    return min(heard, key=_weight, default=None)


def _ask(scene: Scene) -> Iterator[Verdict]:
    for entry in catalogue.entries():
        # The past decides on a restart (decide.py), not on what is happening now.
        if entry.fault.slug == "restart-loop":
            continue
        for face in entry.fault.perceptions:
            try:
                verdict = face(scene)
            except Exception:  # noqa: BLE001, S112 - one broken face must not end a healthy job
                continue
            if verdict is not None:
                yield verdict


def _weight(verdict: Verdict) -> tuple[bool, bool, bool, int]:
    order = ORDER.index(verdict.slug) if verdict.slug in ORDER else len(ORDER)
    return not verdict.fatal, not verdict.certain, not verdict.ranks, order
