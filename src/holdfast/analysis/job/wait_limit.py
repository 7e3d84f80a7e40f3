"""How long a wait for a rank may last before `run` ends it: the timeout that its author declared.

A rank that merely sits somewhere proves nothing: it may wait for an answer over HTTP, a
subprocess, a lock, a prompt. At its timeout torch aborts the ranks that wait, and blames one of
them; `run` comes shortly before. Where torch would not abort, neither does it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from holdfast.analysis.collectives import waits
from holdfast.analysis.collectives.positions import Wait
from holdfast.analysis.job import join
from holdfast.analysis.scene.scene import RankView, Scene

LEAST = 5.0
"""seconds that taking evidence and ending the ranks need before torch does"""
MOST = 30.0
SHARE = 0.02
"""of the timeout, between these two: long waits are seen less exactly"""
SHORT = 0.2
"""of the timeout at most: a timeout of 6 s is still 4.8 s long"""


class LimitedWait(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's wait, and what its group allows."""

    since: float
    """monotonic: when it surely had begun"""
    timeout: float


def act_after(timeout: float) -> float:
    """Seconds into a wait with this timeout after which `run` ends it; 0 when it never does."""
    return timeout - min(max(LEAST, min(SHARE * timeout, MOST)), SHORT * timeout)


def limited_waits(scene: Scene, victims: tuple[int, ...], *, nccl: bool) -> Iterator[LimitedWait]:
    """The waits of these ranks that torch itself would end; `nccl`: it aborts NCCL's too."""
    evidence_at = scene.evidence_at or scene.now
    affected = set(victims)
    for wait in waits.analyse(scene).waits:
        view = scene.rank(wait.rank)
        ends = torch_ends(view, wait, nccl=nccl)
        if wait.rank in affected and ends and (timeout := wait.timeout or _declared(view)):
            yield LimitedWait(since=evidence_at - wait.seconds, timeout=timeout)
    for view in scene.ranks:
        claim = join.claim_of(view)
        if view.rank in affected and claim and claim.timeout and join.waits_to_join(view):
            since = max(claim.at, scene.started_at)
            yield LimitedWait(since=since, timeout=claim.timeout)


def torch_ends(view: RankView, wait: Wait, *, nccl: bool = True) -> bool:
    """Whether torch ends this wait at its timeout, as far as is known; `nccl`: as the launcher's
    own environment says. The rank's may say otherwise."""
    claim = join.claim_of(view)
    aborts = nccl and (claim is None or claim.nccl_aborts)
    return aborts or wait.backend not in ("nccl", "")


def _declared(view: RankView) -> float:
    """Of the group, for a collective that only a stack shows. A wait for a key in the store is
    not the group's, and ends by itself with the name of the rank it waited for."""
    beat = view.beat
    return 0.0 if beat is None or beat.waits_for is not None else beat.group_timeout
