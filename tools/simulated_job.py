"""Training jobs on a mesh of ranks, played through without a process until no rank can continue.

Every rank runs its program of collectives and messages: tensor, data, expert and pipeline parallel
groups as Megatron, FSDP and torch's pipelining issue them. Scripts run ahead of their GPUs where
the backend is NCCL. One or two ranks misbehave; what the others do then follows from the rules of
the backend alone. Pure: a seed gives the same job again.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from random import Random

STOPS = ("stuck", "frozen", "killed")
KINDS = (*STOPS, "skipped", "extra", "size", "gpu")
"""how a rank misbehaves: its script stops, its process is stopped or gone, it leaves a collective
out, calls one more, calls one of another size, its GPU never comes to one"""
STEPS = 2
AXES = ("tp", "dp", "ep", "pp")


@dataclass(frozen=True)
class Op:
    """One line of the program."""

    axis: str
    op: str
    size: int = 4
    ahead: bool = False
    """what follows on the GPU does not wait for it"""
    wait: bool = False
    """the script waits here until all it asked for is over"""
    messages: tuple[tuple[str, int], ...] = ()
    """('send' or 'recv', stages from here); several are posted as one"""


@dataclass(frozen=True)
class Mesh:
    tp: int
    dp: int
    pp: int
    ep: int
    """divides dp; 1 for none"""

    @property
    def size(self) -> int:
        return self.tp * self.dp * self.pp

    def place(self, rank: int) -> tuple[int, int, int]:
        """(stage, replica, part)"""
        return rank // (self.tp * self.dp), rank // self.tp % self.dp, rank % self.tp

    def coordinates(self, rank: int, axis: str) -> tuple[int, ...]:
        """The same for all ranks of one group of that axis."""
        stage, replica, part = self.place(rank)
        return {
            "world": (),
            "tp": (stage, replica),
            "dp": (stage, part),
            "ep": (stage, replica // self.ep, part),
            "pp": (replica, part),
        }[axis]

    def groups(self) -> dict[tuple[str, tuple[int, ...]], tuple[str, tuple[int, ...]]]:
        """(axis, coordinates) -> its name and ranks, numbered as torch makes them."""
        found: dict[tuple[str, tuple[int, ...]], list[int]] = {}
        for axis in ("world", *AXES):
            if axis == "world" or getattr(self, axis) > 1:
                for rank in range(self.size):
                    found.setdefault((axis, self.coordinates(rank, axis)), []).append(rank)
        return {key: (str(n), tuple(ranks)) for n, (key, ranks) in enumerate(found.items())}


@dataclass(frozen=True)
class Misdeed:
    rank: int
    kind: str
    at: int
    """the line of its program"""
    axis: str = "world"
    """of the additional collective"""


@dataclass
class Issue:
    """What one rank asked for, and how far it came."""

    op: Op
    group: str
    sequence: int
    """counted by each rank for itself; of messages among messages"""
    order: int
    """when its script asked for it, of all ranks"""
    meetings: tuple[Meeting, ...]
    """where it meets other ranks; one for each message"""
    streams: frozenset[object]
    size: int
    started: bool = False
    done: bool = False


@dataclass
class Meeting:
    """A collective, or one message, and which ranks have come to it."""

    ranks: tuple[int, ...]
    is_message: bool
    party: dict[int, Issue] = field(default_factory=dict)
    started: int = 0
    kinds: set[tuple[str, int]] = field(default_factory=set)

    @property
    def is_over(self) -> bool:
        """All have come, on their GPUs, with the same."""
        return self.started == len(self.ranks) and (self.is_message or len(self.kinds) == 1)


@dataclass
class Player:
    rank: int
    at: int = 0
    issued: list[Issue] = field(default_factory=list)
    undone: list[Issue] = field(default_factory=list)
    counts: dict[tuple[object, ...], int] = field(default_factory=dict)
    misdeeds: tuple[Misdeed, ...] = ()
    did: Misdeed | None = None
    halted: bool = False
    gpu_stopped_before: int | None = None
    """the first of `issued` that its GPU never comes to"""
    must_wait: bool = False


@dataclass
class Job:
    """Played to its end when it is made."""

    mesh: Mesh
    backend: str
    programs: list[list[Op]]
    """one for each stage"""
    misdeeds: tuple[Misdeed, ...]
    players: list[Player] = field(default_factory=list)
    meetings: dict[tuple[object, ...], Meeting] = field(default_factory=dict)
    clock: int = 0

    def __post_init__(self) -> None:
        self.groups = self.mesh.groups()
        self.members = dict(self.groups.values())
        self.players = [
            Player(rank, misdeeds=tuple(m for m in self.misdeeds if m.rank == rank))
            for rank in range(self.mesh.size)
        ]
        self._dirty = deque(range(self.mesh.size))
        self._queued = set(self._dirty)
        while self._dirty:
            rank = self._dirty.popleft()
            self._queued.discard(rank)
            self._continue(self.players[rank])

    def program(self, rank: int) -> list[Op]:
        return self.programs[self.mesh.place(rank)[0]]

    def group(self, rank: int, axis: str) -> tuple[str, tuple[int, ...]]:
        return self.groups[axis, self.mesh.coordinates(rank, axis)]

    # --- playing -------------------------------------------------------------------------------

    def _continue(self, me: Player) -> None:
        program = self.program(me.rank)
        while True:
            self._start(me)
            if me.halted or me.at >= len(program) or (me.must_wait and me.undone):
                return
            me.must_wait = False
            op, misdeed = program[me.at], next((m for m in me.misdeeds if m.at == me.at), None)
            me.at += 1
            if misdeed is not None:
                me.did = misdeed
                if misdeed.kind in STOPS:
                    me.halted = True
                    continue
                if misdeed.kind == "gpu":
                    me.gpu_stopped_before = len(me.issued)
                if misdeed.kind == "extra":
                    self._issue(me, Op(misdeed.axis, op.op if not op.messages else "all_reduce"))
                if misdeed.kind == "skipped":
                    continue
            self._issue(me, op, larger=misdeed is not None and misdeed.kind == "size")
            me.must_wait = op.wait or (self.backend == "gloo" and not op.ahead)

    def _issue(self, me: Player, op: Op, *, larger: bool = False) -> None:
        group, members = self.group(me.rank, op.axis)
        is_message = bool(op.messages)
        counter = (group, is_message)
        me.counts[counter] = me.counts.get(counter, 0) + 1
        sequence = me.counts[counter]
        places: dict[tuple[object, ...], tuple[int, ...]] = {}
        if not is_message:
            places[group, sequence] = members
        for way, away in op.messages:
            peer = members[members.index(me.rank) + away]
            pair = (me.rank, peer) if way == "send" else (peer, me.rank)
            lane = (group, *pair)
            me.counts[lane] = me.counts.get(lane, 0) + 1
            place = (*lane, me.counts[lane])
            places[place] = pair
        issue = Issue(
            op=op,
            group=group,
            sequence=sequence,
            order=self.clock,
            meetings=tuple(
                self.meetings.setdefault(place, Meeting(ranks, is_message))
                for place, ranks in places.items()
            ),
            streams=frozenset(place[:3] if is_message else group for place in places),
            size=op.size * 3 + 1 if larger else op.size,
        )
        self.clock += 1
        me.issued.append(issue)
        me.undone.append(issue)
        for meeting in issue.meetings:
            meeting.party[me.rank] = issue
            meeting.kinds.add((op.op, issue.size))

    def _start(self, me: Player) -> None:
        """What the GPU comes to: the streams of a group keep their order, and what follows one
        that is not 'ahead' waits for it."""
        busy: set[object] = set()
        limit = me.gpu_stopped_before
        last = me.issued[limit].order if limit is not None and limit < len(me.issued) else None
        for issue in list(me.undone):
            if last is not None and issue.order >= last:
                return
            if not issue.started and busy.isdisjoint(issue.streams):
                issue.started = True
                for meeting in issue.meetings:
                    meeting.started += 1
                    if meeting.is_over:
                        self._wake(meeting)
            if issue.started and all(meeting.is_over for meeting in issue.meetings):
                issue.done = True
                me.undone.remove(issue)
            else:
                busy |= issue.streams
                if not issue.op.ahead:
                    return

    def _wake(self, meeting: Meeting) -> None:
        for rank in meeting.ranks:
            if rank not in self._queued:
                self._queued.add(rank)
                self._dirty.append(rank)

    # --- what is true --------------------------------------------------------------------------

    def blocked(self) -> list[int]:
        return [p.rank for p in self.players if p.undone and not p.halted]

    def finished(self) -> list[int]:
        """Ranks at the end of their program, which would exit."""
        return [p.rank for p in self.players if p.at >= len(self.program(p.rank)) and not p.undone]

    def culprits(self) -> tuple[int, ...]:
        """Ranks that have misbehaved, whether or not any rank has noticed."""
        return tuple(p.rank for p in self.players if p.did is not None)

    def felt(self) -> tuple[int, ...]:
        """Those that some other rank waits for, itself or by way of others."""
        behind = {p.rank: self._waited_for(p) for p in self.players}
        reached: set[int] = set()
        ahead = {other for rank in self.blocked() for other in behind[rank] if other != rank}
        while ahead:
            reached |= ahead
            ahead = {other for rank in ahead for other in behind[rank]} - reached
        return tuple(sorted(reached & set(self.culprits())))

    def _waited_for(self, me: Player) -> set[int]:
        found: set[int] = set()
        for meeting in (m for issue in me.undone if issue.started for m in issue.meetings):
            late = {
                rank
                for rank in meeting.ranks
                if rank not in meeting.party or not meeting.party[rank].started
            }
            if not late and not meeting.is_over:
                late = {rank for rank in meeting.ranks if self.players[rank].did is not None}
            found |= late
        return found - {me.rank} if not me.halted else set()


# --- random ones ---------------------------------------------------------------------------------


def random_mesh(random: Random, largest: int) -> Mesh:
    """8 to `largest` ranks, small ones more often."""
    usual = [n for n in (16, 32, 64, 128) if n < largest]
    largest = random.choice([*usual, *usual, *usual, largest])
    while True:
        tp, dp, pp = (2 ** random.randint(0, 4) for _ in range(3))
        if random.random() < 0.3:
            dp = random.choice((3, 5, 6, 12, dp))
        ep = random.choice([n for n in (1, 2, 4, 8, dp) if dp % n == 0]) if dp > 1 else 1
        mesh = Mesh(tp=tp, dp=dp, pp=pp, ep=ep if random.random() < 0.4 else 1)
        if 8 <= mesh.size <= largest:
            return mesh


class Trainer:
    """How all ranks of a job train: micro-batches through layers, then gradients."""

    def __init__(self, random: Random, mesh: Mesh) -> None:
        self.mesh = mesh
        self.layers, self.batches = random.randint(1, 2), random.randint(1, 3)
        self.calls = random.randint(1, 2)
        """of a tensor-parallel layer, and buckets of gradients"""
        self.alike = random.random() < 0.5
        """all layers have the same size"""
        self.sharded = mesh.dp > 1 and random.random() < 0.5
        self.batched = random.random() < 0.5
        """a pipeline sends and receives in one call where it can"""
        self.end = random.choice(("all_reduce", "barrier", ""))
        """with which a step of the whole world ends"""
        self.waits = random.random() < 0.3 or not self.end
        """the script waits at the end of a step"""

    def step(self, stage: int) -> list[Op]:
        found = [op for _ in range(self.batches) for op in self._forward(stage)]
        for batch in range(self.batches):
            found += self._backward(stage, batch)
        if self.mesh.dp > 1 and not self.sharded:
            found += [Op("dp", "all_reduce", 256, ahead=True)] * self.calls
        if self.end:
            found.append(Op("world", self.end, 1, wait=True))
        if self.waits and found:
            found[-1] = replace(found[-1], wait=True)
        return found

    def _forward(self, stage: int) -> list[Op]:
        received = [_message("recv", -1)] if stage > 0 else []
        sent = [_message("send", 1)] if stage < self.mesh.pp - 1 else []
        layers = [op for n in range(self.layers) for op in self._layer(n, backward=False)]
        return [*received, *layers, *sent]

    def _backward(self, stage: int, batch: int) -> list[Op]:
        """In the middle of a pipeline the gradient goes back while the next one comes."""
        last = stage == self.mesh.pp - 1
        both = self.batched and stage > 0 and not last
        found = [] if last or (both and batch) else [_message("recv", 1)]
        for number in reversed(range(self.layers)):
            found += self._layer(number, backward=True)
        if both and batch < self.batches - 1:
            found.append(Op("pp", "batch", 8, messages=(("send", -1), ("recv", 1))))
        elif stage > 0:
            found.append(_message("send", -1))
        return found

    def _layer(self, number: int, *, backward: bool) -> list[Op]:
        size = 64 if self.alike else 64 + 8 * number
        found = []
        if self.sharded:
            found.append(Op("dp", "_all_gather_base", size, ahead=True))
        if self.mesh.tp > 1:
            found += [Op("tp", "all_reduce", size)] * self.calls
        if self.mesh.ep > 1:
            found += [Op("ep", "all_to_all", size)] * 2
        if backward and self.sharded:
            found.append(Op("dp", "_reduce_scatter_base", size, ahead=True))
        return found


def _message(way: str, away: int) -> Op:
    return Op("pp", way, 8, ahead=way == "send", messages=((way, away),))


def random_job(seed: int, *, largest: int = 512) -> Job:
    """One in which a rank misbehaves and another notices."""
    random = Random(seed)
    while True:
        mesh = random_mesh(random, largest)
        backend = "nccl" if random.random() < 0.75 or mesh.pp > 1 else "gloo"
        trainer = Trainer(random, mesh)
        programs = [trainer.step(stage) * STEPS for stage in range(mesh.pp)]
        if not any(programs):
            continue
        misdeeds = []
        ranks = random.sample(range(mesh.size), random.choice((1, 1, 2)))
        near = random.random() < 0.5
        at = None
        for rank in ranks:
            program = programs[mesh.place(rank)[0]]
            if not program:
                break
            line = random.randrange(len(program) // 3, len(program))
            at = at if near and at is not None and at < len(program) else line
            misdeeds.append(_misdeed(random, mesh, rank, program, at, backend))
        job = Job(mesh, backend, programs, tuple(misdeeds))
        if job.felt() and not job.finished():
            return job


def _misdeed(
    random: Random, mesh: Mesh, rank: int, program: list[Op], at: int, backend: str
) -> Misdeed:
    kinds = [k for k in KINDS if backend == "nccl" or k not in ("size", "gpu")]
    kind = random.choice(("stuck", *kinds))
    if program[at].messages and kind in ("skipped", "size"):
        kind = "stuck"
    axes = ["world", *(axis for axis in AXES[:3] if getattr(mesh, axis) > 1)]
    return Misdeed(rank, kind, at, random.choice(axes))
