"""Worlds put together to one job: ranks with the launcher's numbers, recorders with their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.analysis.scene.scene import Claim, RankView, Recorder, Scene
from tests.run.scenes import NOW, STARTED, a_beat, a_rank, a_scene

GIVEN = "127.0.0.1:29500"
"""the launcher's store"""
HERE, THERE = "127.0.0.1:29511", "127.0.0.1:29512"
"""the stores of two worlds"""


def a_claim(number: int, size: int, store: str, **changes: Any) -> Claim:
    claim = Claim(
        at=STARTED + 5.0,
        rank=number,
        world_size=size,
        store=store,
        own_store=store != GIVEN,
        agent_store=store == GIVEN,
        timeout=1800.0,
        device="",
        given_rank=0,
        given_world_size=4,
        given_store=GIVEN,
    )
    return msgspec.structs.replace(claim, **changes)


def member(rank: int, number: int, size: int, store: str, **view: Any) -> RankView:
    """Rank `rank` of the launcher is number `number` of the world at `store`."""
    claims = view.pop("claims", {})
    whole = a_rank(rank, **view)
    if whole.beat is None:
        return whole
    claim = a_claim(number, size, store, given_rank=rank, **claims)
    return msgspec.structs.replace(whole, beat=msgspec.structs.replace(whole.beat, claim=claim))


def outside(rank: int, **view: Any) -> RankView:
    """Has never called init_process_group, nor taken a step."""
    beat = a_beat(group_ready=False, steps=0, step_at=0.0, usual_step=0.0, group_timeout=0.0)
    return a_rank(rank, **{"beat": beat, **view})


def renumbered(scene: Scene, ranks: Sequence[int], store: str) -> list[RankView]:
    """The views of a scene in which rank n was number n, as ranks of a larger job."""
    views = []
    for view, rank in zip(scene.ranks, ranks, strict=True):
        assert view.beat is not None
        claim = a_claim(view.rank, len(scene.ranks), store, given_rank=rank)
        beat = msgspec.structs.replace(view.beat, claim=claim)
        views.append(
            msgspec.structs.replace(view, rank=rank, local_rank=rank, pid=4000 + rank, beat=beat)
        )
    return views


def together(*views: Iterable[RankView], like: Scene | None = None) -> Scene:
    listed = sorted((view for some in views for view in some), key=lambda view: view.rank)
    if like is None:
        return a_scene(listed, evidence_at=NOW - 0.1)
    return msgspec.structs.replace(like, ranks=tuple(listed))


def with_members(recorder: Recorder, members: Mapping[str, tuple[int, ...]]) -> Recorder:
    """As NCCL has it, in the numbers of its world."""
    return msgspec.structs.replace(recorder, members=dict(members))
