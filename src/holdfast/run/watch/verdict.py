"""THE VERDICT: every fault looks at the scene, and the best-founded answer is taken. Pure.

Certain before notice; somebody to name before nobody; then the order below: what ended a rank,
ranks that cannot meet, ranks that do not run, ranks that are merely late.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

from holdfast import catalogue
from holdfast.analysis.job import pace
from holdfast.analysis.scene import exits
from holdfast.analysis.scene.scene import Scene
from holdfast.fault import Perception
from holdfast.findings import Verdict

ORDER = (
    # told to stop
    "sighup-terminal",
    "preempted",
    "external-sigterm",
    # an end: what is known more closely comes before the mere fact
    "host-oom",
    "dataloader-killed",
    "gpu-oom",
    "disk-full",
    "duplicate-gpu",
    "rank-assignment",
    "master-not-listening",
    "join-timeout",
    "world-size-mismatch",
    "config-changed",
    "data-position-lost",
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
    "cpu-contention",
    "gil-held",
    "driver-hang",
    "slow-rank-timeout",
    "ranks-missing",
    "rank-stuck",
    "slow-rank",
    # after the ranks have gone
    "orphaned-workers",
    # heard of: told as news, never taken for what holds a job up
    "restart-from-zero",
    "checkpoint-corrupt",
    "checkpoint-incomplete",
    "checkpoint-cadence",
)
NEEDS_A_STALL = frozenset(
    {"rank-conditional-code", "gil-held", "driver-hang", "slow-rank-timeout", "ranks-missing"}
    | {"rank-stuck", "rank-exits-early"}
    | {"rank-assignment", "master-not-listening", "join-timeout"}
)
"""read from positions, which in a running job are torn and change by the millisecond"""
EXPLAINS = "cpu-contention"
"""names nobody, and speaks only when that is why a rank is late: then no rank is to be named"""
CHECKPOINTS = "HOLD8"
NEEDS_NO_STALL = "slow-rank"
"""a rank is slow while steps go on; when nothing goes on it is something else"""


class Broken(NamedTuple):
    """A face that raised: a bug in holdfast, which must not end a healthy job, nor stay unsaid."""

    slug: str
    face: str
    problem: str
    """'KeyError: 3'"""


class Opinion(NamedTuple):
    verdict: Verdict | None
    broken: tuple[Broken, ...]


def judge(scene: Scene, *, clocks_since: float = 0.0, stands_still: bool = False) -> Verdict | None:
    """What holds the job up, if anything does. Never raises.

    `stands_still`: nothing moves, as is known from elsewhere; else the job's own habit tells.
    """
    return consider(scene, clocks_since=clocks_since, stands_still=stands_still).verdict


def consider(scene: Scene, *, clocks_since: float = 0.0, stands_still: bool = False) -> Opinion:
    """The same, and which faces could not answer."""
    ended = bool(exits.endings(scene))
    still = stands_still or ended or pace.stalled(scene, clocks_since=clocks_since)
    answers = list(_ask(scene))
    heard = [
        verdict
        for verdict in answers
        if isinstance(verdict, Verdict)
        and (still or verdict.slug not in NEEDS_A_STALL)
        and not (still and verdict.slug == NEEDS_NO_STALL)
    ]
    broken = tuple(answer for answer in answers if isinstance(answer, Broken))
    return Opinion(min(heard, key=_weight, default=None), broken)


def _ask(scene: Scene) -> Iterator[Verdict | Broken]:
    for entry in catalogue.entries():
        # The past decides on a restart (decide.py), not on what is happening now.
        if entry.fault.slug == "restart-loop":
            continue
        for face in entry.fault.perceptions:
            try:
                verdict = face(scene)
            except Exception as bug:  # noqa: BLE001 - one broken face must not end a healthy job
                yield Broken(entry.fault.slug, _name(face), f"{type(bug).__name__}: {bug}")
                continue
            # What was heard of saves and resumes holds nobody up: it is told once, as news.
            if verdict is not None and not is_hearsay(verdict):
                yield verdict


def is_hearsay(verdict: Verdict) -> bool:
    return verdict.code.startswith(CHECKPOINTS) and not verdict.certain


def hearsay(scene: Scene) -> list[Verdict]:
    """What the catalogue makes of what the ranks told of their checkpoints. Never raises."""
    found = []
    for entry in catalogue.entries():
        if entry.fault.code.startswith(CHECKPOINTS):
            for face in entry.fault.perceptions:
                with contextlib.suppress(Exception):  # `consider` owns up to it
                    found.append(face(scene))
    return [verdict for verdict in found if verdict and is_hearsay(verdict)]


def _name(face: Perception) -> str:
    return str(getattr(face, "__name__", face))


def _weight(verdict: Verdict) -> tuple[bool, bool, bool, int]:
    order = ORDER.index(verdict.slug) if verdict.slug in ORDER else len(ORDER)
    nobody = not verdict.ranks and verdict.slug != EXPLAINS
    return not verdict.fatal, not verdict.certain, nobody, order
