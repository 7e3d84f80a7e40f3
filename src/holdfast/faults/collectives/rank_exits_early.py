"""A rank exited normally while the others still needed it.

What you see   `Connection closed by peer` or `Connection reset by peer` on the other ranks, or a
               hang. The rank that left has exit code 0 and no error, so every launcher blames a
               neighbour.
Why            It reached the end of the script, called sys.exit() or returned early: fewer batches
               than the others, an early `return` under a condition, `if rank != 0: exit()`. The
               others' next collective includes it.
How to be sure Exit code 0, before any other rank reported an error. holdfast reports it only when
               another rank waits for it or lost its connection to it: a rank that may exit earlier
               is not reported.
Fix            Make all ranks run the same number of steps (see uneven-inputs), and end with
               `dist.barrier()` and `dist.destroy_process_group()` on all of them.
Known limits   From logs alone a normal exit is known only if torch (`destroy_process_group() was
               not called before program exit`), NCCL, torchrun or DeepSpeed recorded it, or if the
               last line of the rank says so, or torchrun has nothing to list or end beside the rank
               that failed (then its number is not known). One that just stops logging looks like
               rank-killed where connections to it closed (both are said), and else like rank-stuck.
Sources        torch/distributed/elastic/agent/server/api.py: exit code 0 is healthy
               https://docs.pytorch.org/docs/stable/distributed.html#shutdown
               https://github.com/pytorch/pytorch/issues/78531
"""

from __future__ import annotations

import signal

from holdfast import text
from holdfast.analysis.collectives import wait_graph, waits
from holdfast.analysis.drill.injection import (
    NO_OTHER_RANK,
    BreakInside,
    CannotInject,
    Injection,
    Then,
)
from holdfast.analysis.drill.rehearsal import Rehearsal
from holdfast.analysis.job import phrases, stall
from holdfast.analysis.logs import blame, odd_ranks, suspects
from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.patterns import endings, launchers, native_crashes
from holdfast.analysis.logs.patterns.endings import LEFT_OPEN
from holdfast.analysis.logs.wreckage import RankRemains, Sighting, Wreckage
from holdfast.analysis.scene import exits, secondary_errors
from holdfast.analysis.scene.scene import RankView, Recorder, Scene
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Evidence, Verdict

FAULT = Fault(
    code="HOLD605",
    slug="rank-exits-early",
    traits=RunTraits(priority=320, needs_stall=True),
    related=("uneven-inputs", "rank-killed", "group-not-destroyed", "rank-conditional-code"),
)


@FAULT.run
def rank_exited_before_the_others(scene: Scene) -> Verdict | None:
    left = exits.left_well(scene)
    if not left or exits.cause(scene):
        return None
    losers = _lost_a_peer(scene, left)
    waiters = () if losers else _wait_for_the_gone(scene)
    if not losers and not waiters:
        return None
    ranks = [view.rank for view in left]
    victims = exits.fallen(scene, ranks)
    how = (
        f"then {text.ranks(losers)} lost the connection to it"
        if losers
        else f"and {text.ranks(waiters)} still {_verb(waiters)} for it"
    )
    return FAULT.verdict(
        f"{phrases.who(scene, ranks)} {_did(left[0])}{phrases.at_step(left[0])}, {how}",
        ranks=ranks,
        victims=victims,
        certain=bool(losers) or all(w.sure for w in waits.analyse(scene).waits),
        fix="make all ranks run the same number of steps and exit together",
        evidence=[
            *(Evidence(quote=f"rank {v.rank} (pid {v.pid}): {_did(v)}", rank=v.rank) for v in left),
            *(phrases.how_it_ended(e) for e in exits.endings(scene)),
        ],
    )


def _did(view: RankView) -> str:
    """Its exit code is known only when it is gone; taking CUDA apart takes seconds."""
    did = "exited with code 0" if view.death else "is exiting without an error"
    return f"{did}{phrases.called(view)}"


def _lost_a_peer(scene: Scene, left: tuple[RankView, ...]) -> tuple[int, ...]:
    """Ranks whose connection broke, or that exited silently, after the first of them had left."""
    first = min(exits.parted_at(view) for view in left)
    ended = {
        e.rank
        for e in exits.endings(scene)
        # the sockets close a moment before the kernel reports the exit
        if e.at >= first - 0.5
        and (e.consequence == secondary_errors.LOST_PEER or (e.mute and exits.may_miss_a_peer(e)))
    }
    told = {view.rank for view in scene.ranks if view.lost_peer and view.death is None}
    return tuple(sorted(ended | told))


def _wait_for_the_gone(scene: Scene) -> tuple[int, ...]:
    """Every remaining rank waits for one that has left, or behind one that does."""
    living = {v.rank: v for v in scene.ranks if v.death is None}
    if not living or not all(isinstance(v.recorder, Recorder) for v in living.values()):
        return ()
    waiting = [w for w in waits.analyse(scene).waits if w.seconds >= stall.WAITS]
    graph = wait_graph.follow({
        w.rank: frozenset((*w.absent, *w.behind) or w.gone)
        for w in waiting
        if w.absent or w.behind or w.gone
    })  # fmt: skip
    if graph.led != living.keys() or graph.ends & living.keys():
        return ()
    return tuple(w.rank for w in waiting if w.gone and not w.absent)


def _verb(ranks: tuple[int, ...]) -> str:
    return text.plural(ranks, "waits", "wait")


# --- explain -------------------------------------------------------------------------------------

DESTROYED = FAULT.log_pattern(
    "destroyed",
    r"comm 0x[0-9a-f]+ rank (?P<rank>\d+) nranks (?P<nranks>\d+).*- (?:Destroy|Finalize) COMPLETE",
    anchors=("Destroy COMPLETE", "Finalize COMPLETE"),
    example="vm:1011:1011 [0] NCCL INFO comm 0x1b67ca30 rank 2 nranks 4 cudaDev 0 busId 60 - "
    "Destroy COMPLETE",
    role=Role.CONTEXT,
)


SPAWNED = FAULT.log_pattern(
    "deepspeed-spawned",
    r"process (?P<pid>\d+) spawned with command: .*--local_rank=(?P<local>\d+)",
    anchors=" spawned with command: ",
    example="[2026-03-02 20:28:05,674] [INFO] [launch.py:256:main] process 1011 spawned with "
    "command: ['/usr/bin/python', '-u', 'train.py', '--local_rank=2']",
    role=Role.CONTEXT,
)
LEFT = FAULT.log_pattern(
    "deepspeed-left",
    r"Process (?P<pid>\d+) exits successfully",
    anchors=" exits successfully",
    example="[2026-03-02 20:28:05,674] [INFO] [launch.py:351:main] Process 1011 exits "
    "successfully.",
    role=Role.CONTEXT,
)
FIX = (
    "make all ranks run the same number of steps and end together: `dist.barrier()` and "
    "`dist.destroy_process_group()` on all of them; `holdfast run` shows after which step each "
    "rank left"
)


@FAULT.explain
def finished_rank_was_still_needed(wreckage: Wreckage) -> Diagnosis | None:
    known = blame.of(wreckage)
    certain = [r.rank for r in wreckage.ranks if r.finished]
    # As NCCL or torch logged it, unless all ranks did: that is how every job ends.
    waited = frozenset(known.victims)
    put_away = [s for s in wreckage.seen(DESTROYED, LEFT_OPEN) if s.rank not in waited]
    done = [r for r in wreckage.ranks if r.rank not in waited and _says_done(r)]
    told = [*certain, *(s.rank for s in put_away if s.rank is not None), *(r.rank for r in done)]
    left = list(dict.fromkeys(told))
    missed = [rank for rank in known.victims if rank not in left]
    if not left or not missed or known.explained or known.disagreement:
        return None
    return FAULT.diagnosis(
        f"{text.ranks(left)} exited normally while {text.ranks(missed)} still needed it: they "
        "lost the connection to it or timed out waiting for it",
        confidence=0.8 if certain else _sure(wreckage, put_away),
        seen=(*put_away[:2], *blame.first_complaint(wreckage)),
        evidence=[_last_line(r) for r in done[:2]],
        culprit=odd_ranks.named(left),
        victims=missed,
        fix=FIX,
        ruled_out=blame.ruled_out(wreckage),
        unknown=blame.unknown(wreckage, *left[:1]),
    )


def _says_done(remains: RankRemains) -> bool:
    return remains.last is not None and endings.says_done(remains.last.text)


def _last_line(remains: RankRemains) -> Evidence:
    line = remains.last
    assert line is not None
    return Evidence(quote=line.text, source=line.source, line=line.number, rank=remains.rank)


def _sure(wreckage: Wreckage, put_away: list[Sighting]) -> float:
    """torch's warning is written at the end of a program, by a rank that raised nothing here; one
    that came after the others' complaints may be a late end of a job that had failed."""
    warned = [s for s in put_away if s.pattern == LEFT_OPEN.name]
    complaints = blame.first_complaint(wreckage)
    late = any(
        one.line.source == s.line.source and one.order < s.order
        for s in warned
        for one in complaints
    )
    return 0.45 if late else 0.7 if warned else 0.6


@FAULT.explain
def ended_without_a_word(wreckage: Wreckage) -> Diagnosis | None:
    """`os._exit(0)` looks like a kill from outside: a connection closes, and nothing is written."""
    suspect = suspects.find(wreckage)
    if suspect is None or not suspect.ended or suspect.how != "mute" or len(suspect.ranks) > 1:
        return None
    rank = suspect.ranks[0]
    return FAULT.diagnosis(
        f"rank {rank} may have ended by itself without a word (`os._exit`, which runs no clean-up, "
        f"or a script that left early): connections closed while {text.ranks(suspect.victims)} "
        "still needed it; in these lines a kill from outside looks the same",
        confidence=0.4,
        seen=suspect.seen,
        culprit=suspects.culprit_on(wreckage, suspect),
        victims=suspect.victims,
        fix=FIX,
        ruled_out=blame.ruled_out(wreckage),
        unknown=blame.unknown(wreckage, rank),
    )


@FAULT.explain
def torchrun_does_not_list_it_as_failed(wreckage: Wreckage) -> Diagnosis | None:
    """Its summary lists all ranks that failed or that it ended: a missing one exited normally."""
    listed = [e for e in wreckage.exits if e.teller == "torchrun" and e.rank is not None]
    closed = {s.fields.get("pid") for s in wreckage.seen(launchers.CLOSING)}
    failed = {e.rank for e in listed if e.rank is not None}
    members = wreckage.members | set(range(max(failed, default=-1) + 1))
    left = sorted(members - failed)
    ended = len(closed | {str(e.pid) for e in listed})
    one_node = all(e.local_rank in (None, e.rank) for e in listed)
    told = bool(wreckage.seen(launchers.ROOT_CAUSE)) and one_node
    if not left or not told or len(members) - ended != len(left):
        return None
    how = "torchrun lists all other ranks as failed or terminated by it"
    # An excerpt with one failed rank may lack the lines about the others, and the others' number.
    whole = bool(closed) or len(failed) > 1 or wreckage.world_size is not None
    return _by_launcher(wreckage, left, how, confidence=0.75 if whole else 0.4)


SEVERAL = FAULT.log_pattern(
    "several-ranks-here",
    r"Setting OMP_NUM_THREADS environment variable for each process to be 1 in default",
    anchors="Setting OMP_NUM_THREADS environment variable for each process",
    example="W1115 01:02:03.456000 4711 torch/distributed/run.py:766] Setting OMP_NUM_THREADS "
    "environment variable for each process to be 1 in default, to avoid your system being "
    "overloaded",
    role=Role.CONTEXT,
)
"""torchrun says so only where it starts more than one rank on its machine"""


@FAULT.explain
def torchrun_had_no_other_rank_to_end(wreckage: Wreckage) -> Diagnosis | None:
    """It lists every rank that failed and ends every one that lives: with one failed rank and
    nothing to end, all others of its machine had exited normally. Their numbers it does not say."""
    known = blame.of(wreckage)
    listed = {e.rank for e in wreckage.exits if e.teller == "torchrun" and e.rank is not None}
    ended = wreckage.seen(launchers.CLOSING, launchers.FORCED)
    if not wreckage.seen(launchers.ROOT_CAUSE) or ended or known.explained or known.disagreement:
        return None
    if listed != {0} or not listed <= known.lost or wreckage.members - listed:
        return None
    several = bool(wreckage.seen(SEVERAL))
    elsewhere = "" if several else ", unless the job has ranks on other machines"
    return FAULT.diagnosis(
        f"{text.ranks(listed)} lost the connection to another rank, which torchrun neither lists "
        "as failed nor had to end: it had exited normally, with code 0, while "
        f"{text.ranks(listed)} still needed it{elsewhere}",
        confidence=0.65 if several else 0.4,
        seen=(*wreckage.seen(launchers.ROOT_CAUSE), *blame.first_complaint(wreckage)),
        culprit=Culprit(what=f"a rank other than {text.ranks(listed)}"),
        victims=listed,
        fix=FIX,
        ruled_out=("a crash or a kill: torchrun would list that rank as failed",),
        unknown=("which rank it was: torchrun numbers only the ranks that failed",),
    )


@FAULT.explain
def aborted_while_it_was_exiting(wreckage: Wreckage) -> Diagnosis | None:
    """The C++ runtime aborts a program that ends while threads of it run, as a group's do that was
    not destroyed. The launcher sees SIGABRT where the script had asked for code 0."""
    known = blame.of(wreckage)
    seen = wreckage.seen(native_crashes.GAVE_UP)
    ends = [e for e in blame.by_signal(wreckage, signal.SIGABRT) if e.first]
    if not seen or len(ends) != 1 or ends[0].rank is None or known.own or not known.lost:
        return None
    return FAULT.diagnosis(
        f"{blame.subject(ends[0])} was exiting while {text.ranks(known.lost)} still needed it: the "
        "C++ runtime aborted it (SIGABRT) without an exception, as it does with a program that "
        "ends with threads of its group running",
        confidence=0.65,
        seen=(*seen[:1], *blame.first_complaint(wreckage)),
        evidence=[blame.of_exit(ends[0])],
        culprit=Culprit(rank=ends[0].rank, host=ends[0].host, pid=ends[0].pid),
        victims=known.lost,
        fix=FIX,
        ruled_out=("an exception of that rank: it wrote none",),
        unknown=("why it was exiting: see its last lines, and where the script may end early",),
    )


@FAULT.explain
def deepspeed_saw_it_exit(wreckage: Wreckage) -> Diagnosis | None:
    numbers = {s.fields["pid"]: int(s.fields["local"]) for s in wreckage.seen(SPAWNED)}
    left = [numbers[s.fields["pid"]] for s in wreckage.seen(LEFT) if s.fields["pid"] in numbers]
    if not left or max(wreckage.members, default=0) >= len(numbers):
        return None  # several nodes: a local rank is not a rank
    how = "DeepSpeed logged that it 'exits successfully'"
    return _by_launcher(wreckage, sorted(left), how, confidence=0.8)


def _by_launcher(
    wreckage: Wreckage, left: list[int], how: str, *, confidence: float
) -> Diagnosis | None:
    known = blame.of(wreckage)
    if set(left) & set(known.victims) or not known.victims or known.explained:
        return None
    return FAULT.diagnosis(
        f"{text.ranks(left)} exited normally ({how}) while {text.ranks(known.victims)} still "
        "needed it",
        confidence=confidence,
        seen=(*wreckage.seen(LEFT)[:1], *blame.first_complaint(wreckage)),
        culprit=odd_ranks.named(left),
        victims=known.victims,
        fix=FIX,
        ruled_out=blame.ruled_out(wreckage),
        unknown=blame.unknown(wreckage, *left[:1]),
    )


COMES_APART = 15.0
"""seconds: Python with torch takes a few to exit on a busy machine, and is gone only then"""


@FAULT.drill()
def leave_the_others(rehearsal: Rehearsal) -> Injection | CannotInject:
    if rehearsal.job.ranks == 1:
        return NO_OTHER_RANK
    return Injection(
        does=f"rank {rehearsal.rank} exits with code 0 {rehearsal.when}",
        act=BreakInside(how="exit"),
        then=Then.RESTARTS,
        notice_within=COMES_APART,
    )
