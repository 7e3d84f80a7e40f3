"""Ranks on their way into the group: which came, which did not, and what each says it is. Pure."""

from __future__ import annotations

import re

from holdfast.analysis.collectives.worlds import parts, plain_address
from holdfast.analysis.scene.exits import Ending
from holdfast.analysis.scene.scene import Claim, Frame, RankView, Scene, Stack

WAITS = ("init_process_group", "_new_process_group_helper", "rendezvous", "_store_based_barrier")
"""functions of torch.distributed in which a rank waits for the others to come"""
CONNECTS = "_create_c10d_store"
"""the one in which it waits for the store itself"""
STORE_NOT_REACHED = re.compile(
    r"The client socket has (?:timed out after .* while trying|failed) to connect to|"
    r"[Cc]onnection refused|ECONNREFUSED"
)


def claim_of(view: RankView) -> Claim | None:
    return view.beat.claim if view.beat is not None else None


def joined(view: RankView) -> bool:
    return view.beat is not None and view.beat.group_ready


def shown_joining(view: RankView) -> bool | None:
    """Whether its stack is inside init_process_group; None when there is no stack."""
    if not isinstance(view.stack, Stack):
        return None
    return any(_is(frame, *WAITS, CONNECTS) for frame in view.stack.frames)


def shown_connecting(view: RankView) -> bool:
    """Whether its stack shows that it has not reached the store yet, or serves it and waits."""
    return isinstance(view.stack, Stack) and any(_is(f, CONNECTS) for f in view.stack.frames)


def waits_to_join(view: RankView) -> bool:
    """It entered init_process_group and is, as far as can be seen, still there."""
    if view.death or view.words or joined(view) or claim_of(view) is None:
        return False
    return shown_joining(view) is not False


def gave_up_on_store(ending: Ending) -> bool:
    """torch said that the store did not answer. Python's own ConnectionRefusedError is about
    something else: a tensor whose sender exited, or a service of the user's."""
    view = ending.view
    if view.words is None or joined(view) or claim_of(view) is None:
        return False
    from_torch = view.words.kind.endswith("DistNetworkError")
    return from_torch and bool(STORE_NOT_REACHED.search(view.words.text))


def not_come(scene: Scene) -> tuple[RankView, ...]:
    """Living ranks, and ranks that left with exit code 0, that never entered it."""
    return tuple(
        v
        for v in scene.ranks
        if not v.words
        and (v.death is None or v.death.code == 0)
        and v.beat is not None
        and not joined(v)
        and v.beat.claim is None
        and not v.beat.steps
        and not shown_joining(v)
    )


def missing_from_their_worlds(scene: Scene) -> list[int]:
    """Ranks whose world has begun to form without them; one outside of any is not missing."""
    forming = [part for part in parts(scene) if any(map(joined, part.ranks))]
    return sorted(v.rank for part in forming for v in part.ranks if not joined(v))


def same_place(one: str, other: str) -> bool:
    """Two ways to write one store's address, as far as that can be known without looking."""
    return plain_address(one) == plain_address(other)


def host_of(store: str) -> str:
    return plain_address(store).rpartition(":")[0]


def _is(frame: Frame, *names: str) -> bool:
    return "/torch/distributed/" in frame.file and frame.function.rpartition(".")[2] in names
