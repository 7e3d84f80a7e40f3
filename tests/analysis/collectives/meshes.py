"""Jobs on a mesh of data × tensor parallel ranks, played through without a process.

All ranks run one program, as a real job does, until one of them misbehaves and the others can
not go on: what their recorders then hold is what the verdict has to work with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from holdfast.analysis.scene.scene import Collective, RankView, Recorder, Scene
from tests.run.scenes import (
    IN_BACKWARD,
    IN_SLEEP,
    NOW,
    WALL,
    a_beat,
    a_rank,
    a_recorder,
    a_scene,
    entry,
)

LONG_AGO = NOW - 6.0


@dataclass(frozen=True)
class Op:
    """One line of the program."""

    axis: str
    """'world', 'dp' or 'tp': over which ranks"""
    size: int = 4
    ahead: bool = False
    """issued, and not waited for before the end of the step, as FSDP2 prefetches"""


@dataclass(frozen=True)
class Mesh:
    dp: int
    tp: int

    @property
    def ranks(self) -> range:
        return range(self.dp * self.tp)

    def group(self, rank: int, axis: str) -> str:
        """Numbered as torch does: the default group, one per column, one per row."""
        if axis == "world":
            return "0"
        return str(1 + rank % self.tp) if axis == "dp" else str(1 + self.tp + rank // self.tp)

    def members(self, rank: int, axis: str) -> list[int]:
        return [r for r in self.ranks if self.group(r, axis) == self.group(rank, axis)]


@dataclass
class Player:
    """One rank on its way through the program."""

    at: int = 0
    entered: list[Collective] = field(default_factory=list)
    waits_for: list[tuple[str, int]] = field(default_factory=list)

    def enter(self, group: str, size: int, at: int) -> tuple[str, int]:
        sequence = 1 + sum(c.group == group for c in self.entered)
        shape = f"[[{size}]] Float"
        created = WALL + at * 0.01
        self.entered.append(
            entry(sequence, group=group, shape=shape, finished=False, created=created)
        )
        return group, sequence


@dataclass
class Play:
    """The program, step after step, until nobody can go on."""

    mesh: Mesh
    program: list[Op]
    """of all steps together"""
    step: int
    """how many operations make a step"""
    culprit: int
    stops_at: int
    """the operation at which the culprit misbehaves"""
    size: int = 0
    """what it issues there instead; 0: it stops"""
    players: dict[int, Player] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.players = {rank: Player() for rank in self.mesh.ranks}
        while any([self._go_on(rank) for rank in self.mesh.ranks]):  # noqa: C419 - all move
            pass

    def _go_on(self, rank: int) -> bool:
        me = self.players[rank]
        if me.at >= len(self.program) or not all(self._over(rank, p) for p in me.waits_for):
            return False
        if rank == self.culprit and me.at == self.stops_at and not self.size:
            return False
        op = self.program[me.at]
        wrong = rank == self.culprit and me.at == self.stops_at
        place = me.enter(self.mesh.group(rank, op.axis), self.size if wrong else op.size, me.at)
        me.at += 1
        step_ends = me.at % self.step == 0
        me.waits_for = [p for p in me.waits_for if not self._over(rank, p)]
        if not op.ahead or wrong or step_ends:
            me.waits_for.append(place)
        if step_ends:
            me.waits_for += [(c.group, c.sequence) for c in me.entered]
        return True

    def _over(self, rank: int, place: tuple[str, int]) -> bool:
        """All members came to it, with the same."""
        group, sequence = place
        there = [
            c
            for player in self.players.values()
            for c in player.entered
            if c.group == group and c.sequence == sequence
        ]
        axis = next(a for a in ("world", "dp", "tp") if self.mesh.group(rank, a) == group)
        members = self.mesh.members(rank, axis)
        return len(there) == len(members) and len({c.shape for c in there}) == 1

    def blocked(self) -> list[int]:
        return [
            rank
            for rank, me in self.players.items()
            if any(not self._over(rank, place) for place in me.waits_for)
        ]

    def recorder(self, rank: int) -> Recorder:
        over = [
            replace_finished(c, finished=self._over(rank, (c.group, c.sequence)))
            for c in self.players[rank].entered
        ]
        return a_recorder(*over)

    def view(self, rank: int) -> RankView:
        sleeps = rank == self.culprit and not self.size
        return a_rank(
            rank,
            recorder=self.recorder(rank),
            stack=IN_SLEEP if sleeps else IN_BACKWARD,
            beat=a_beat(step_at=LONG_AGO),
            alive_at=LONG_AGO,
        )

    def scene(self) -> Scene:
        views = [self.view(rank) for rank in self.mesh.ranks]
        return a_scene(views, evidence_at=NOW - 0.1, evidence_wall=WALL + 60.0)


def replace_finished(collective: Collective, *, finished: bool) -> Collective:
    return entry(
        collective.sequence,
        group=collective.group,
        shape=collective.shape,
        finished=finished,
        created=collective.created,
    )


def timed(mesh: Mesh, program: list[Op], costs: Mapping[int, float], *, step: int) -> Scene:
    """The same program by the clock: each rank works so long before each step, then meets the
    others; nobody stops."""
    clock = dict.fromkeys(mesh.ranks, WALL)
    players = {rank: Player() for rank in mesh.ranks}
    for at, op in enumerate(program):
        for rank in mesh.ranks:
            clock[rank] += 0.001 + (costs[rank] if at % step == 0 else 0.0)
            players[rank].enter(mesh.group(rank, op.axis), op.size, at)
            last = players[rank].entered[-1]
            players[rank].entered[-1] = entry(
                last.sequence, group=last.group, shape=last.shape, created=clock[rank]
            )
        if not op.ahead:
            arrived = dict(clock)
            for rank in mesh.ranks:
                clock[rank] = max(arrived[r] for r in mesh.members(rank, op.axis))
    views = [a_rank(r, recorder=a_recorder(*players[r].entered)) for r in mesh.ranks]
    return a_scene(views, evidence_at=NOW)


def again(program: list[Op], steps: int) -> list[Op]:
    return [replace(op) for _ in range(steps) for op in program]
