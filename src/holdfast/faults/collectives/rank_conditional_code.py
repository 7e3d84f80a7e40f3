"""A collective runs on only some of its ranks.

What you see   A silent hang: some ranks wait in one collective, the others in another one, of
               another group. Each would continue if the others came.
Why            `if rank == 0: dist.barrier()`, a save or a metric that gathers on one rank only, a
               group whose members do not all call. Within one group the ranks then meet in the
               wrong collective (see collective-mismatch); across two groups they wait for each
               other.
How to be sure holdfast follows which rank waits for which through all groups: here that leads back
               to where it began. Every rank waits, so waiting longer does not help. The ranks'
               stacks show the lines.
Fix            Call collectives on all members of the group, outside of `if rank == …`; keep only
               the printing and writing inside.
Known limits   In a tie it is undecided which side is wrong, and holdfast says so. `holdfast lint`
               judges conditions on the rank within one file; a condition that depends on data is
               seen only when the job hangs.
Sources        https://docs.pytorch.org/docs/stable/distributed.html#groups
               https://github.com/pytorch/pytorch/issues/118369
               nvidia-resiliency-ext attribution/trace_analyzer/fr_attribution.py: several groups
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast import text
from holdfast.analysis.collectives import call_sites, groups, wait_graph, waits
from holdfast.analysis.collectives.detours import Detour
from holdfast.analysis.collectives.positions import Wait
from holdfast.analysis.drill.injection import (
    NO_OTHER_RANK,
    BreakInside,
    CannotInject,
    Injection,
    Then,
)
from holdfast.analysis.drill.rehearsal import Rehearsal
from holdfast.analysis.job import stall
from holdfast.analysis.logs import blame, fingerprints, horovod_stall, odd_ranks
from holdfast.analysis.logs.disagreement import Disagreement
from holdfast.analysis.logs.patterns.missing_rank import HOROVOD_READY
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.scene.scene import Scene
from holdfast.analysis.source.checkpoints.own_calls import own_checkpoints
from holdfast.analysis.source.program import Program
from holdfast.analysis.source.ranks import (
    job_size,
    missed_collectives,
    missed_messages,
    swallowed_errors,
)
from holdfast.analysis.source.ranks.guards import rank_guards
from holdfast.analysis.source.source import Source
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding, Verdict

FAULT = Fault(
    code="HOLD602",
    slug="rank-conditional-code",
    traits=RunTraits(priority=340, needs_stall=True),
    related=("collective-mismatch", "uneven-inputs", "rank-stuck", "deadlock-ring"),
)


SIDES = 8
"""places named in a sentence: on a large mesh there may be hundreds"""
MESSAGES = ("messages", 0)


@FAULT.run
def ranks_wait_for_each_other(scene: Scene) -> Verdict | None:
    seen = waits.analyse(scene)
    involved = seen.deadlock or seen.circle
    own_waits = [wait for wait in seen.waits if wait.rank in set(involved)]
    if not own_waits or seen.mismatch or min(w.seconds for w in own_waits) < stall.WAITS:
        return None
    sides: Sides = {}
    for wait in own_waits:
        # Stages of a pipeline wait for each other one by one, which is one place of the program.
        place = MESSAGES if wait.is_message else (wait.group, wait.sequence)
        sides.setdefault(place, []).append(wait)
    undecided, minority = _minority(seen.detour, sides)
    odd = {w.rank for side in minority for w in side} if minority else set(involved)
    rest = [w.rank for w in seen.waits if w.rank not in odd]
    if undecided:
        where = _where(scene, minority or list(sides.values()))
        reason = (
            f"the ranks{_of_world(scene)} wait for each other in different groups: {where}; "
            "undecided which side is wrong"
        )
    else:
        own = _where(scene, minority)
        others = [side for side in sides.values() if odd.isdisjoint(w.rank for w in side)]
        where = f"{text.ranks(rest)} wait for it"
        if len(others) == 1:
            where = f"{_waits(others[0])} for it{_line(scene, others[0])}"
        reason = f"{own}, {_left_out(seen.detour)}{_of_world(scene)}; {where}"
    return FAULT.verdict(
        reason,
        ranks=odd,
        one_of=undecided,
        victims=rest,
        # A wait that no recorder shows may have begun just now, and a rank that does not wait may
        # yet come.
        certain=bool(seen.deadlock) and all(wait.sure and wait.group for wait in seen.waits),
        fix="call that collective on every member of the group, outside of `if rank == …`",
        evidence=[Evidence(quote=w.title, source=_source(w), rank=w.rank) for w in seen.waits],
    )


Sides = dict[tuple[str, int], list[Wait]]


def _minority(detour: Detour | None, sides: Sides) -> tuple[bool, list[list[Wait]]]:
    """Whether it is undecided, and the sides to blame: of each only the ranks that left the way."""
    if end := _where_all_lead(sides):
        return False, [end]
    if detour is None:
        return True, []
    odd = set(detour.ranks)
    own = [[wait for wait in side if wait.rank in odd] for side in sides.values()]
    return detour.undecided, [side for side in own if side]


def _left_out(detour: Detour | None) -> str:
    if detour is None or detour.left_out is None:
        return "which no other rank calls"
    group, number = detour.left_out
    return f"and left out collective #{number}{groups.in_words(group)}, which the others are in"


def _where_all_lead(sides: Sides) -> list[Wait]:
    """The one rank in a collective that no recorder shows any other in, when the waits of all the
    others lead to it; of two ranks either may be wrong."""
    listed = [wait for side in sides.values() for wait in side]
    graph = wait_graph.follow({w.rank: frozenset(w.absent) for w in listed if w.absent})
    lone = [w for w in listed if w.alone and not w.absent]
    led = len(lone) == 1 and graph.ends == {lone[0].rank} and len(graph.led) == len(listed) - 1
    return lone if led and len(listed) > 2 else []


def _of_world(scene: Scene) -> str:
    return f" of {scene.world}" if scene.world else ""


def _source(wait: Wait) -> str:
    return "flight recorder" if wait.group else "stack"


def _where(scene: Scene, sides: list[list[Wait]]) -> str:
    shown = [_waits(side) + _line(scene, side) for side in sides[:SIDES]]
    more = [f"{len(sides) - SIDES} more groups the same way"] if len(sides) > SIDES else []
    return "; ".join([*shown, *more])


def _line(scene: Scene, side: list[Wait]) -> str:
    """' (in evaluate() at train.py:26)', of the first rank of that side that shows it."""
    lines = (call_sites.last_line(scene.rank(wait.rank)) for wait in side)
    return next((f" ({line})" for line in lines if line), "")


def _waits(side: list[Wait]) -> str:
    ranks = [wait.rank for wait in side]
    verb = text.plural(ranks, "waits", "wait")
    places = {wait.title for wait in side}
    return f"{text.ranks(ranks)} {verb} in {places.pop() if len(places) == 1 else 'send or recv'}"


# --- explain -------------------------------------------------------------------------------------

FIX = (
    "make every member of the group take the same path through the code: look for `if rank == …`, "
    "branches that depend on the batch, early returns, and modules that some batches skip"
)
DETAIL = "export TORCH_DISTRIBUTED_DEBUG=DETAIL"
"""then start the job again: torch compares the collectives at every call"""


@FAULT.explain
def ranks_ran_different_collectives(wreckage: Wreckage) -> Diagnosis | None:
    told = wreckage.seen(fingerprints.FINGERPRINTS)
    found = fingerprints.compare(told) or blame.of(wreckage).disagreement
    if found is None:
        return None
    return FAULT.diagnosis(
        f"the ranks did not run the same collectives in the same order ({found.words()}): "
        f"{_meaning(found)}",
        confidence=_sure(found, told=bool(told)),
        seen=told or blame.first_complaint(wreckage),
        evidence=() if told else odd_ranks.evidence(found),
        culprit=odd_ranks.culprit(found),
        victims=found.others,
        fix=FIX,
        next=DETAIL,
        ruled_out=blame.ruled_out(wreckage),
        unknown=() if found.odd else (odd_ranks.UNDECIDED,),
    )


@FAULT.explain
def torch_shows_one_side_only(wreckage: Wreckage) -> Diagnosis | None:
    """torch compared the collectives, but what the other rank ran is not in the line."""
    seen = wreckage.seen(fingerprints.FINGERPRINTS)
    if not seen or fingerprints.compare(seen):
        return None
    order = fingerprints.same_everywhere(seen)
    return FAULT.diagnosis(
        "torch compared the collectives of the ranks and found a difference"
        + (
            ": this one has the same size on every rank, so the order of calls differs"
            if order
            else "; what the other ranks ran is not in these lines"
        ),
        confidence=0.7 if order else 0.5,
        seen=seen,
        culprit=Culprit(),
        fix=FIX,
        next="grep -B 30 'Detected mismatch' *.log",
        unknown=("which rank took a different path: only one side is shown",),
    )


def _meaning(found: Disagreement) -> str:
    if found.what == "count":
        return "one side counts further, so it issued collectives that the other did not"
    if found.what == "op":
        return "at one position they call different operations, so their code paths differ"
    return "gradient sizes differ when a rank skipped a part of the model"


def _sure(found: Disagreement, *, told: bool) -> float:
    """A different size may come from the data alone: less sure then, unless torch compared the
    buckets of DDP, whose sizes depend on nothing but the code that ran."""
    if found.what == "size":
        return 0.7 if told and fingerprints.is_bucket(found) else 0.5
    return 0.75 if told else 0.7


@FAULT.explain
def few_ranks_entered_the_collective(wreckage: Wreckage) -> Diagnosis | None:
    """Most ranks never entered it and wait for nothing: the ranks inside are the odd ones."""
    known = blame.of(wreckage)
    place, absent = known.place, known.census.roots
    if place is None or known.explained or known.disagreement or len(absent) <= len(place.waiting):
        return None
    return FAULT.diagnosis(
        f"only {text.ranks(place.waiting)} entered {place.title}; {text.ranks(absent)} never did "
        "and wait for no other rank: only some ranks call this collective",
        confidence=0.6,
        seen=blame.first_complaint(wreckage),
        evidence=blame.positions(wreckage),
        culprit=odd_ranks.named(place.waiting),
        victims=absent,
        fix=FIX,
        next=DETAIL,
        ruled_out=blame.ruled_out(wreckage),
        unknown=blame.unknown(wreckage, *absent[:1]),
    )


@FAULT.explain
def ranks_waited_for_each_other(wreckage: Wreckage) -> Diagnosis | None:
    """Every rank waits for a rank that waits elsewhere: waiting longer does not help."""
    known = blame.of(wreckage)
    detour, ring = known.census.detour, known.census.ring
    sides = [s for s in known.census.standstills if s.absent and not {*ring}.isdisjoint(s.waiting)]
    if detour is None or not sides or known.explained or known.disagreement:
        return None
    told = "; ".join(f"{text.ranks(side.waiting)} in {side.title}" for side in sides[:4])
    return FAULT.diagnosis(
        f"the ranks waited for each other in different groups ({told}): "
        + (
            "each would continue if the others came"
            if detour.undecided
            else f"{text.ranks(detour.ranks)} left the order that the others kept"
        ),
        confidence=0.75,
        seen=blame.first_complaint(wreckage),
        evidence=[Evidence(quote=f"waits in {s.title}", source="flight recorder", rank=r)
                  for s in sides[:8] for r in s.waiting[:1]],
        culprit=odd_ranks.named(detour.ranks, one_of=detour.undecided),
        victims=known.others(*detour.ranks),
        fix="call the collectives of both groups in the same order on every rank that is in both",
        next=DETAIL,
        ruled_out=blame.ruled_out(wreckage),
        unknown=("which of these ranks left the order: no others show it",)
        if detour.undecided
        else (),
    )  # fmt: skip


@FAULT.explain
def horovod_holds_tensors_of_different_ranks(wreckage: Wreckage) -> Diagnosis | None:
    """Of two waiting tensors, each was submitted by ranks that lack the other: a rank that is
    merely late lacks both."""
    ready = horovod_stall.ready_ranks(wreckage)
    crossed = [(a, b) for a in ready for b in ready if a - b and b - a]
    if not crossed or blame.of(wreckage).explained:
        return None
    one, other = sorted(crossed[0], key=min)
    return FAULT.diagnosis(
        f"Horovod holds one tensor that only {text.ranks(one)} submitted and another that only "
        f"{text.ranks(other)} submitted: their code paths differ",
        confidence=0.65,
        seen=wreckage.seen(HOROVOD_READY),
        culprit=Culprit(what=f"{text.ranks(one)} versus {text.ranks(other)}"),
        victims=one | other,
        fix=FIX,
        next="export HOROVOD_TIMELINE=timeline.json",
    )


@FAULT.explain
def horovod_lists_different_missing_tensors(wreckage: Wreckage) -> Diagnosis | None:
    missing = horovod_stall.missing_tensors(wreckage)
    if len(set(map(tuple, missing.values()))) < 2 or blame.of(wreckage).explained:
        return None
    seen: tuple[Sighting, ...] = tuple(s for s in wreckage.sightings if "tensors" in s.fields)
    return FAULT.diagnosis(
        "Horovod's stall report lists different missing tensors for different ranks: they submit "
        "different tensors, so their code paths differ",
        confidence=0.7,
        seen=seen,
        culprit=Culprit(what=" versus ".join(f"rank {rank}" for rank in sorted(missing)[:4])),
        victims=missing,
        fix=FIX,
        next="export HOROVOD_TIMELINE=timeline.json",
    )


# --- in what a user wrote ------------------------------------------------------------------------


@FAULT.lint_python
def one_rank_swallows_its_error(program: Program, _: Source) -> Iterator[Finding]:
    yield from map(FAULT.from_problem, swallowed_errors.problems(program))


@FAULT.lint_python
def some_ranks_miss_a_collective(program: Program, source: Source) -> Iterator[Finding]:
    for one in missed_collectives.missed_collectives(program):
        splits = job_size.is_split(one.split, program, source.started_by)
        if splits is False:
            continue
        report = FAULT.error if one.sure and splits else FAULT.warning
        said = missed_messages.message(one)
        unless = "" if splits else f" (unless the job never has more than {one.split.first} ranks)"
        reason = f"{said.reason}{unless}"
        yield report(said.summary, reason=reason, fix=said.fix, at=program.place(one.at))


@FAULT.lint_python
def one_rank_counts_the_steps_of_a_checkpoint(
    program: Program, source: Source
) -> Iterator[Finding]:
    for one in own_checkpoints(program):
        for call in one.method("step"):
            guard = next(rank_guards(program, call.node), None)
            if guard is None or not guard.split.sure or guard.split.mixed:
                continue
            if job_size.is_split(guard.split, program, source.started_by):
                yield FAULT.error(
                    f"{call.written}() runs only {guard.split.where}",
                    reason="every rank writes its own part of a checkpoint, and rank 0 waits for "
                    "all parts: no save is ever completed",
                    fix=f"call {call.written}() on every rank, outside of the condition",
                    at=program.place(call.node),
                )


@FAULT.drill()
def enter_a_barrier_alone(rehearsal: Rehearsal) -> Injection | CannotInject:
    """Most scripts have one group: there it is a mismatch, as the page says."""
    if rehearsal.job.ranks == 1:
        return NO_OTHER_RANK
    return Injection(
        does=f"rank {rehearsal.rank} alone calls barrier() {rehearsal.when}",
        act=BreakInside(how="skip"),
        then=Then.RESTARTS,
        slugs=(FAULT.slug, "collective-mismatch"),
        culprits=(0, 1) if rehearsal.job.ranks == 2 else None,
    )
