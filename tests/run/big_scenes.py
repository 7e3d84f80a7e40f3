"""Scenes of large jobs: eight ranks a node, a world group, data and tensor parallel groups."""

from __future__ import annotations

import signal
from collections.abc import Callable

import msgspec

from holdfast.analysis.scene.scene import Claim, Collective, RankView, Recorder, Scene
from tests.faults.joiners import JOINING
from tests.run.scenes import (
    ENFORCE,
    IN_BACKWARD,
    IN_SLEEP,
    NOW,
    WALL,
    a_beat,
    a_rank,
    a_scene,
    changed,
    ended,
    lost_its_peer,
    on_nodes,
    words,
)

NODE = 8
"""ranks on one, which are a tensor parallel group too"""
KEPT = 64
"""collectives a recorder holds"""
OP_EVERY = 0.01
HELD_UP = 30.0
"""seconds"""


def claim(rank: int, world: int) -> Claim:
    return Claim(
        at=NOW - 90.0,
        rank=rank,
        world_size=world,
        store="10.0.0.1:29400",
        own_store=False,
        agent_store=True,
        timeout=1800.0,
        device="",
        given_rank=rank,
        given_world_size=world,
        given_store="10.0.0.1:29400",
        wall=WALL - 90.0,
    )


def _recorder(rank: int, world: int, *, listed: bool, stops: bool, waits: bool) -> Recorder:
    """World, tensor and data parallel collectives in turn. The last one, of the data parallel
    group, is open where the rank waits; one that stops has not come to it."""
    tp, dp = f"{1 + rank // NODE}", f"{1 + world // NODE + rank % NODE}"
    groups = ["0", tp, dp]
    backend = "nccl" if listed else "gloo"
    numbers = dict.fromkeys(groups, 100)
    made: list[Collective] = []
    for n in range(KEPT):
        group = groups[n % 3]
        last = n == KEPT - 1
        if last:
            group = dp
        numbers[group] += 1
        if last and stops:
            break
        made.append(
            Collective(
                group=group,
                sequence=numbers[group],
                op="all_reduce",
                backend=backend,
                shape=f"[{1024 * (1 + n % 5)}, 16] Float",
                finished=not (last and waits),
                created=WALL + n * OP_EVERY + (rank % 7) * 1e-4,
                timeout=1800.0,
            )
        )
    entered = {g: max(c.sequence for c in made if c.group == g) for g in groups}
    finished = {g: max(c.sequence for c in made if c.group == g and c.finished) for g in groups}
    members = {
        "0": tuple(range(world)),
        tp: tuple(range(rank - rank % NODE, rank - rank % NODE + NODE)),
        dp: tuple(range(rank % NODE, world, NODE)),
    }
    return Recorder(
        collectives=tuple(made),
        entered=entered,
        finished=finished,
        members=members if listed else {},
    )


def _job(
    ranks: int, view: Callable[[int], RankView], *, listed: bool = True, **changes: float
) -> Scene:
    return on_nodes(a_scene([view(rank) for rank in range(ranks)], **changes), NODE)


def _healthy(ranks: int, *, listed: bool) -> Scene:
    def view(rank: int) -> RankView:
        return a_rank(
            rank,
            beat=a_beat(claim=claim(rank, ranks)),
            recorder=_recorder(rank, ranks, listed=listed, stops=False, waits=False),
        )

    wall = WALL + KEPT * OP_EVERY + 0.1
    return _job(ranks, view, evidence_at=NOW - 0.05, evidence_wall=wall)


def _stalled(ranks: int, *, listed: bool) -> Scene:
    """One rank sleeps; its data parallel group waits for it, the others for those."""
    culprit = ranks // 2 + 1

    def view(rank: int) -> RankView:
        stops = rank == culprit
        then = NOW - HELD_UP
        return a_rank(
            rank,
            beat=a_beat(claim=claim(rank, ranks), step_at=then),
            alive_at=then,
            stack=IN_SLEEP if stops else IN_BACKWARD,
            recorder=_recorder(rank, ranks, listed=listed, stops=stops, waits=not stops),
        )

    wall = WALL + KEPT * OP_EVERY + HELD_UP
    return _job(ranks, view, evidence_at=NOW - 0.1, evidence_wall=wall)


def _dead(ranks: int, *, listed: bool) -> Scene:
    """One rank was killed, and half of the others have lost their connection to it."""
    culprit = ranks // 2 + 1
    stalled = _stalled(ranks, listed=listed)

    def view(rank: int) -> RankView:
        seen = stalled.rank(rank)
        if rank == culprit:
            gone = ended(rank, -signal.SIGKILL, at=NOW - 1.5)
        elif rank % 2:
            gone = lost_its_peer(rank, at=NOW - 1.0)
        else:
            return seen
        return msgspec.structs.replace(gone, beat=seen.beat, recorder=seen.recorder)

    return _job(ranks, view, evidence_at=NOW - 0.1, evidence_wall=stalled.evidence_wall)


def _mismatched(ranks: int, *, listed: bool) -> Scene:
    """One rank is in another collective than its data parallel group, and all wait."""
    culprit = ranks // 2 + 1
    stalled = _stalled(ranks, listed=listed)

    def view(rank: int) -> RankView:
        seen = stalled.rank(rank)
        if rank != culprit:
            return seen
        own = _recorder(rank, ranks, listed=listed, stops=False, waits=True)
        wrong = msgspec.structs.replace(own.collectives[-1], shape="[3] Float")
        wrong_one = msgspec.structs.replace(own, collectives=(*own.collectives[:-1], wrong))
        return msgspec.structs.replace(seen, recorder=wrong_one, stack=IN_BACKWARD)

    return _job(ranks, view, evidence_at=NOW - 0.1, evidence_wall=stalled.evidence_wall)


def _aborted(ranks: int) -> Scene:
    """Gloo ended a rank that was sent more than it expected, and it left no recorder."""
    culprit = ranks // 2 + 1
    said = words("RuntimeError", ENFORCE, at=NOW - 1.0)
    gone = ended(culprit, -signal.SIGABRT, said=said)
    stalled = _stalled(ranks, listed=False)

    def view(rank: int) -> RankView:
        seen = stalled.rank(rank)
        return msgspec.structs.replace(gone, beat=seen.beat) if rank == culprit else seen

    return _job(ranks, view, evidence_at=NOW - 0.1, evidence_wall=stalled.evidence_wall)


def _in_a_circle(ranks: int) -> Scene:
    """Half of each node is in a collective of the node's tensor parallel group, the other half in
    those of their data parallel groups; on the first node the other way round."""
    first = _healthy(ranks, listed=True)

    def view(rank: int) -> RankView:
        seen = first.rank(rank)
        tp, dp = f"{1 + rank // NODE}", f"{1 + ranks // NODE + rank % NODE}"
        own = _recorder(rank, ranks, listed=True, stops=False, waits=False)
        group = tp if (rank < NODE) == (rank % NODE < NODE // 2) else dp
        number = own.entered[group] + 1
        at = WALL + KEPT * OP_EVERY
        new = msgspec.structs.replace(
            own.collectives[-1], group=group, sequence=number, finished=False, created=at
        )
        recorder = msgspec.structs.replace(
            own, collectives=(*own.collectives, new), entered={**own.entered, group: number}
        )
        beat = a_beat(claim=claim(rank, ranks), step_at=NOW - HELD_UP)
        return msgspec.structs.replace(
            seen, recorder=recorder, beat=beat, stack=IN_BACKWARD, alive_at=NOW - HELD_UP
        )

    wall = WALL + KEPT * OP_EVERY + HELD_UP
    return _job(ranks, view, evidence_at=NOW - 0.1, evidence_wall=wall)


def _some_left_early(ranks: int) -> Scene:
    """A third of the ranks exited with 0, and the others lost their connections to them."""

    def view(rank: int) -> RankView:
        if rank % 3 == 0:
            return ended(rank, 0, at=NOW - 2.0 + rank * 1e-6)
        return lost_its_peer(rank, at=NOW - 1.5 + rank * 1e-6)

    return _job(ranks, view)


def _all_raised(ranks: int) -> Scene:
    def view(rank: int) -> RankView:
        said = words("ValueError", f"bad batch on rank {rank}", at=NOW - 1.0 + rank * 1e-6)
        return ended(rank, 1, said=said)

    return _job(ranks, view)


def _joining(ranks: int) -> Scene:
    """Half of them wait in init_process_group for the others."""

    def view(rank: int) -> RankView:
        said = claim(rank, ranks) if rank % 2 else None
        beat = a_beat(steps=0, step_at=0.0, usual_step=0.0, group_ready=False, claim=said)
        return a_rank(
            rank, beat=beat, alive_at=NOW - HELD_UP, stack=JOINING if rank % 2 else IN_SLEEP
        )

    return _job(ranks, view, evidence_at=NOW - 0.1)


def _straggling(ranks: int, *, listed: bool) -> Scene:
    """One rank comes 30 ms after the others to every collective."""
    slow = ranks // 2 + 1
    healthy = _healthy(ranks, listed=listed)
    view = healthy.rank(slow)
    assert isinstance(view.recorder, Recorder)
    late = tuple(
        msgspec.structs.replace(c, created=c.created + 0.03) for c in view.recorder.collectives
    )
    recorder = msgspec.structs.replace(view.recorder, collectives=late)
    return changed(healthy, slow, recorder=recorder)


def _node_late(ranks: int) -> Scene:
    stalled = _stalled(ranks, listed=True)
    nodes = (*stalled.nodes[:-1], msgspec.structs.replace(stalled.nodes[-1], hearing="late"))
    return msgspec.structs.replace(stalled, nodes=nodes)


BIG: dict[str, Callable[[int], Scene]] = {
    "healthy, NCCL": lambda ranks: _healthy(ranks, listed=True),
    "healthy, Gloo": lambda ranks: _healthy(ranks, listed=False),
    "one stuck, NCCL": lambda ranks: _stalled(ranks, listed=True),
    "one stuck, Gloo": lambda ranks: _stalled(ranks, listed=False),
    "one killed, NCCL": lambda ranks: _dead(ranks, listed=True),
    "one killed, Gloo": lambda ranks: _dead(ranks, listed=False),
    "another size, NCCL": lambda ranks: _mismatched(ranks, listed=True),
    "another size, Gloo": lambda ranks: _mismatched(ranks, listed=False),
    "one aborted, Gloo": _aborted,
    "in a circle": _in_a_circle,
    "some left early": _some_left_early,
    "all raised": _all_raised,
    "half joined": _joining,
    "one slow, NCCL": lambda ranks: _straggling(ranks, listed=True),
    "one slow, Gloo": lambda ranks: _straggling(ranks, listed=False),
    "one stuck, a node late": _node_late,
}


def big_scene(name: str, ranks: int) -> Scene:
    return BIG[name](ranks)
