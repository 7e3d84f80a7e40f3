"""Ranks on their way into the group, and what they say they are."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.analysis.scene.scene import Claim, RankView, Scene
from tests.run.scenes import IN_SLEEP, NOW, TORCH, a_beat, a_rank, a_scene, a_stack, ended, words

GIVEN = "127.0.0.1:29400"
"""the launcher's store"""
WORLD = 2

EARLY = {"group_ready": False, "steps": 0, "step_at": 0.0, "usual_step": 0.0, "group_timeout": 0.0}
JOINING = a_stack(
    ("_new_process_group_helper", f"{TORCH}/distributed/distributed_c10d.py", 2000),
    ("init_process_group", f"{TORCH}/distributed/distributed_c10d.py", 1700),
    ("main", "/home/me/train.py", 9),
)
CONNECTING = a_stack(
    ("_create_c10d_store", f"{TORCH}/distributed/rendezvous.py", 189),
    ("_env_rendezvous_handler", f"{TORCH}/distributed/rendezvous.py", 278),
    ("init_process_group", f"{TORCH}/distributed/distributed_c10d.py", 1892),
    ("main", "/home/me/train.py", 9),
)


def a_claim(given: int, **changes: Any) -> Claim:
    claim = Claim(
        at=NOW - 20.0,
        rank=given,
        world_size=WORLD,
        store=GIVEN,
        own_store=False,
        agent_store=True,
        timeout=1800.0,
        device="",
        given_rank=given,
        given_world_size=WORLD,
        given_store=GIVEN,
    )
    return msgspec.structs.replace(claim, **changes)


def joiner(given: int, *, view: dict[str, Any] | None = None, **claim: Any) -> RankView:
    """In init_process_group for 20 s, by its page and by its stack."""
    beat = a_beat(**EARLY, claim=a_claim(given, **claim))
    return a_rank(given, **{"beat": beat, "stack": JOINING, **(view or {})})


def late(given: int, **view: Any) -> RankView:
    """Has not come to init_process_group."""
    return a_rank(given, **{"beat": a_beat(**EARLY), "stack": IN_SLEEP, **view})


def gave_up(given: int, kind: str, text: str, **claim: Any) -> RankView:
    """Ended inside init_process_group with these words."""
    view = ended(given, 1, said=words(kind, text, where="train.py:9 in main"))
    beat = a_beat(**EARLY, claim=a_claim(given, **claim))
    return msgspec.structs.replace(view, beat=beat)


def starting(*ranks: RankView, **changes: Any) -> Scene:
    return a_scene(ranks, **{"started_at": NOW - 30.0, "evidence_at": NOW, **changes})


def joined(given: int, **claim: Any) -> RankView:
    """Its init_process_group has returned; no step yet."""
    beat = a_beat(**{**EARLY, "group_ready": True}, claim=a_claim(given, **claim))
    return a_rank(given, beat=beat, stack=IN_SLEEP)
