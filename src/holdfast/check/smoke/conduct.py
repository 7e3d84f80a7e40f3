"""Lead the ranks from stage to stage, all together, and report how it went.

A rank begins a stage when all have finished the one before. So a deadline counts from the
moment the last rank could begin, a slow import is no network problem, and the rank
that does not come is known by name.
"""

from __future__ import annotations

import importlib.util
import math
import secrets
import time
from collections.abc import Callable, Iterable, Mapping

from holdfast.analysis.machine import Plan, Reach, Smoke, SmokeRound, Unread
from holdfast.analysis.machine.nccl_links import in_words
from holdfast.check.smoke import endpoint, narrate, transports
from holdfast.check.smoke.judge import judge
from holdfast.check.smoke.rank_progress import standing
from holdfast.check.smoke.ranks import SmokeRanks
from holdfast.check.smoke.stages import MAX_WORLD, STAGES, Record, deadline
from holdfast.errors import ConfigError, EnvironmentFailure
from holdfast.text import counted

Say = Callable[[str], None]

GRACE = 1.0
"""seconds in which the others may still say what they saw, once a rank has failed"""
GRACE_OF_VICTIMS = 5.0
"""the same when all that spoke were victims: their timeouts ran out almost together, and who
is still silent then is the one they waited for"""
LOOK_EVERY = 2.0
"""seconds between words of progress, and between looks for a stopped process"""
LEAVE_SECONDS = 5.0
"""for the ranks to take their group down by themselves"""


def run(
    plan: Plan,
    *,
    loopback: tuple[Reach, ...] | Unread,
    say: Say,
    seconds: float = 60.0,
    leave_gpus: str = "",
) -> Smoke:
    """Start `plan.nproc` ranks here and see how far they get; no stage longer than
    `seconds` without progress. `leave_gpus`: why no rank may touch a GPU."""
    _refuse_the_impossible(plan)
    smoke = judge(plan.nproc, [], loopback=loopback, seconds=seconds)
    say(narrate.stage_line(smoke, "loopback"))
    if smoke.stages[0].status == "failed":
        return smoke
    meeting = endpoint.choose(plan)
    remark = meeting.remark and f" ({meeting.remark})"
    say(f"starting {counted(plan.nproc, 'rank')}, master {meeting}{remark}")
    more = {"HOLDFAST_SMOKE_NO_NCCL": leave_gpus} if leave_gpus else {}
    smoke = _pass(plan, meeting, more, loopback=loopback, say=say, seconds=seconds)
    if transports.why_no_rounds(smoke):
        return smoke
    say(f"nccl: {in_words(smoke.links)}")

    def play(name: str) -> SmokeRound:
        """Fresh ranks, which need a port of their own: the other one may be in TIME_WAIT."""
        settings = transports.ROUNDS[name]
        if why := transports.why_left_out(name, smoke.links, shared_gpus=smoke.shared_gpus):
            return SmokeRound(name=name, settings=settings, status="skipped", reason=why)
        say(f"transport {name}: starting {counted(plan.nproc, 'rank')} with {_shown(settings)}")
        port = meeting._replace(port=endpoint.free_port())
        more = {**settings, "HOLDFAST_SMOKE_ROUND": name}
        seen = _pass(plan, port, more, loopback=loopback, say=lambda _: None, seconds=seconds)
        return transports.round_of(name, seen)

    rounds = []
    for name in transports.ROUNDS:
        rounds.append(play(name))
        say(narrate.round_line(rounds[-1]))
    return transports.conclude(smoke, rounds)


def _pass(
    plan: Plan,
    meeting: endpoint.Endpoint,
    more: Mapping[str, str],
    *,
    loopback: tuple[Reach, ...] | Unread,
    say: Say,
    seconds: float,
) -> Smoke:
    """Once through all stages with fresh ranks; `more` is added to their environment."""
    with SmokeRanks([{**env, **more} for env in rank_environments(plan, meeting)]) as ranks:
        conductor = _Conductor(ranks, plan.nproc, say, seconds)
        for stage in STAGES:
            conductor.play(stage)
            smoke = judge(plan.nproc, conductor.records, loopback=loopback, seconds=seconds)
            say(narrate.stage_line(smoke, stage))
            if any(one.status == "failed" for one in smoke.stages if one.name == stage):
                return smoke
        conductor.part()
    return judge(plan.nproc, conductor.records, loopback=loopback, seconds=seconds)


def _shown(settings: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in settings.items())


def _refuse_the_impossible(plan: Plan) -> None:
    # Finding a top-level package does not import it. A mere folder named torch has no origin.
    torch = importlib.util.find_spec("torch")
    if torch is None or not torch.origin:
        raise EnvironmentFailure(
            "the smoke test needs torch, and this Python has none",
            hint="install holdfast into the environment of your job, or leave --smoke out",
        )
    if not 1 <= plan.nproc <= MAX_WORLD:
        raise ConfigError(
            f"the smoke test starts 1 to {MAX_WORLD} ranks on one machine, not {plan.nproc}",
            hint="holdfast check --smoke --nproc-per-node 4",
        )


def rank_environments(plan: Plan, meeting: endpoint.Endpoint) -> list[dict[str, str]]:
    """The job's own environment, with what a launcher would add for each rank."""
    token = f"holdfast-smoke-{secrets.token_hex(8)}"
    return [
        {
            # torchrun does the same: else each rank would take every core.
            **({"OMP_NUM_THREADS": "1"} if plan.nproc > 1 else {}),
            **plan.environment,
            **transports.SAYS_MORE,
            "MASTER_ADDR": meeting.address,
            "MASTER_PORT": str(meeting.port),
            "WORLD_SIZE": str(plan.nproc),
            "LOCAL_WORLD_SIZE": str(plan.nproc),
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "HOLDFAST_SMOKE_TOKEN": token,
        }
        for rank in range(plan.nproc)
    ]


class _Conductor:
    """Gives the word, hears the ranks, and knows when waiting has become pointless."""

    def __init__(self, ranks: SmokeRanks, world: int, say: Say, seconds: float) -> None:
        self.ranks = ranks
        self.everybody = frozenset(range(world))
        self.say = say
        self.seconds = seconds
        self.records: list[Record] = []

    def play(self, stage: str) -> None:
        began = time.monotonic()
        ready = True
        if stage == "store":
            # No other rank connects before rank 0 listens: another job's store may be there.
            self._go(stage, {0})
            ready = self._wait(stage, frozenset({0}), {"listening"})
            self._go(stage, self.everybody - {0} if ready else ())
        elif stage != STAGES[0]:
            self._go(stage, self.everybody)
        if not (ready and self._wait(stage, self.everybody, {"done", "skipped"})):
            self._note_the_late(stage)
        took = time.monotonic() - began
        self.records.append(Record(rank=-1, kind="closed", stage=stage, seconds=took))

    def part(self) -> None:
        """All is done: let the ranks go, and wait a little for them to go."""
        self._go("end", self.everybody)
        until = time.monotonic() + LEAVE_SECONDS
        while time.monotonic() < until and not all(m.gone for m in self.ranks.members):
            self._hear()

    def _go(self, stage: str, ranks: Iterable[int]) -> None:
        chosen = set(ranks)
        for member in self.ranks.members:
            if member.rank in chosen:
                member.tell(stage)

    def _hear(self) -> list[Record]:
        news = self.ranks.hear()
        self.records.extend(news)
        for record in news:
            if (record.kind, record.stage) == ("done", STAGES[0]):
                self.say(narrate.rank_line(record, len(self.everybody)))
        return news

    def _wait(self, stage: str, awaited: frozenset[int], kinds: set[str]) -> bool:
        """Until every awaited rank has said one of these; False when that will not happen."""
        patience = deadline(stage, self.seconds)
        silent_until = time.monotonic() + patience
        grace_until = math.inf
        look = time.monotonic() + LOOK_EVERY
        known: set[int] = set()
        stopped: set[int] = set()
        while True:
            news = self._hear()
            said = {r.rank for r in self.records if r.stage == stage and r.kind in kinds}
            missing = awaited - said
            if not missing:
                return True
            now = time.monotonic()
            if any(record.kind in ("rung", "pair") for record in news):
                silent_until = now + patience
            # A rank that failed after it finished this stage is the next stage's matter.
            troubled = self._troubled() & missing
            grace_until = min([grace_until, *(now + self._grace(r) for r in troubled - known)])
            known |= troubled
            if now >= min(silent_until, grace_until) or troubled == missing:
                return False
            if now >= look:
                look = now + LOOK_EVERY
                self.say(narrate.progress_line(stage, sorted(missing)))
                before, stopped = stopped, self._stopped() & missing
                if before & stopped:  # twice in a row: no passing hiccup
                    return False

    def _grace(self, rank: int) -> float:
        victim = standing(rank, self.records).was_a_victim
        return GRACE_OF_VICTIMS if victim else GRACE

    def _troubled(self) -> set[int]:
        return {record.rank for record in self.records if record.kind in ("error", "exit")}

    def _stopped(self) -> set[int]:
        return {member.rank for member in self.ranks.members if member.state() in ("T", "t")}

    def _note_the_late(self, stage: str) -> None:
        """Those that were told to begin and said nothing since; with the kernel's letter."""
        spoken = self._troubled() | {
            r.rank for r in self.records if r.stage == stage and r.kind in ("done", "skipped")
        }
        self.records.extend(
            Record(rank=member.rank, kind="late", stage=stage, text=member.state())
            for member in self.ranks.members
            if member.stage == stage and member.rank not in spoken
        )
