"""A collective that only some ranks run.

What you see   A silent hang: some ranks wait in one collective, the others in another, of another
               group. Each would go on if the others came.
Why            `if rank == 0: dist.barrier()`, a save or a metric that gathers on one rank only, a
               group whose members do not all call. In one group the ranks then meet in the wrong
               collective (see collective-mismatch); across two groups they wait for each other.
How to be sure holdfast follows who waits for whom through all groups: here it comes back to where
               it began, every rank waits, so no patience helps. The lines are in the ranks'
               stacks.
Fix            Call collectives on all members of the group, outside of `if rank == …`; keep only
               the printing and writing inside.
Sources        https://docs.pytorch.org/docs/stable/distributed.html#groups
               https://github.com/pytorch/pytorch/issues/118369
               nvidia-resiliency-ext attribution/trace_analyzer/fr_attribution.py: several groups
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast import text
from holdfast.analysis.collectives import groups, siblings, waits
from holdfast.analysis.collectives.positions import Wait
from holdfast.analysis.job import stall
from holdfast.analysis.logs import blame, disagreement, fingerprints, horovod_stall, odd_ranks
from holdfast.analysis.logs.disagreement import Disagreement
from holdfast.analysis.logs.patterns.missing_rank import HOROVOD_READY
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.scene.scene import Scene
from holdfast.analysis.source.collectives.torch_calls import NEW_GROUPS
from holdfast.analysis.source.program import Program
from holdfast.analysis.source.ranks import missed_collectives, swallowed_errors
from holdfast.analysis.source.source import Source
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding, Verdict

FAULT = Fault(
    code="HOLD602", slug="rank-conditional-code", traits=RunTraits(priority=340, needs_stall=True)
)


@FAULT.run
def they_wait_for_each_other(scene: Scene) -> Verdict | None:
    seen = waits.analyse(scene)
    if not seen.deadlock or seen.mismatch or min(w.seconds for w in seen.waits) < stall.WAITS:
        return None
    sides: dict[tuple[str, int], list[Wait]] = {}
    for wait in seen.waits:
        sides.setdefault((wait.group, wait.sequence), []).append(wait)
    strange = _strange(scene, sides)
    odd = [w.rank for side in strange or sides.values() for w in side]
    rest = [rank for rank in seen.deadlock if rank not in odd]
    if not strange:
        where = "; ".join(_waits(side) for side in sides.values())
        reason = (
            f"the ranks wait for each other in different groups: {where}; undecided who is wrong"
        )
    else:
        place = stall.place(scene.rank(odd[0]))
        own = "; ".join(_waits(side) for side in strange)
        others = [side for side in sides.values() if side not in strange]
        where = _waits(others[0]) if len(others) == 1 else f"{text.ranks(rest)} wait"
        reason = f"{own} ({place}), where nobody else comes; {where} for it"
    return FAULT.verdict(
        reason,
        ranks=odd,
        victims=rest,
        # What no recorder knows of may have begun just now.
        certain=all(wait.sure and wait.group for wait in seen.waits),
        fix="let every member of the group call that collective, outside of `if rank == …`",
        evidence=[Evidence(quote=w.title, source=_source(w), rank=w.rank) for w in seen.waits],
    )


def _strange(scene: Scene, sides: dict[tuple[str, int], list[Wait]]) -> list[list[Wait]]:
    """The sides to blame; none when it is undecided.

    In a mesh every rank may wait somewhere else. Those are where the program has brought them
    whose place others share, in their own group or at the same position of one beside it.
    """
    recorders = groups.of(scene)
    voices = {
        place: len(side) + len(siblings.votes(*place, recorders)) for place, side in sides.items()
    }
    lonely = [side for place, side in sides.items() if voices[place] == 1]
    if lonely and len(lonely) < len(sides):
        return lonely
    most = [place for place in sides if voices[place] == max(voices.values())]
    return [side for place, side in sides.items() if place != most[0]] if len(most) == 1 else []


def _source(wait: Wait) -> str:
    return "flight recorder" if wait.group else "stack"


def _waits(side: list[Wait]) -> str:
    ranks = [wait.rank for wait in side]
    verb = text.plural(ranks, "waits", "wait")
    return f"{text.ranks(ranks)} {verb} in {side[0].title}"


# --- explain -------------------------------------------------------------------------------------

FIX = (
    "let every member of the group take the same way through the code: look for `if rank == …`, "
    "branches that depend on the batch, early returns, and modules that some batches skip"
)
DETAIL = "export TORCH_DISTRIBUTED_DEBUG=DETAIL"
"""then start the job again: torch compares the collectives at every call"""


@FAULT.explain
def they_took_different_ways(wreckage: Wreckage) -> Diagnosis | None:
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
        victims=[rank for rank in found.ranks if rank not in found.odd],
        fix=FIX,
        next=DETAIL,
        ruled_out=blame.ruled_out(wreckage),
        unknown=() if found.odd else (odd_ranks.UNDECIDED,),
    )


@FAULT.explain
def one_side_is_left(wreckage: Wreckage) -> Diagnosis | None:
    """torch compared them, but the line is cut: what the other rank ran is not shown."""
    seen = wreckage.seen(fingerprints.FINGERPRINTS)
    if not seen or fingerprints.compare(seen):
        return None
    order = fingerprints.same_everywhere(seen)
    return FAULT.diagnosis(
        "torch compared the collectives of the ranks, and they differ"
        + (
            ": this one has the same size on every rank, so it is the order of calls that differs"
            if order
            else "; what the others ran is not in these lines"
        ),
        confidence=0.7 if order else 0.5,
        seen=seen,
        culprit=Culprit(),
        fix=FIX,
        next="grep -B 30 'Detected mismatch' *.log",
        unknown=("which rank went another way: only one side is shown",),
    )


def _meaning(found: Disagreement) -> str:
    if found.what == "count":
        return "one has come further in the count, so it issued some that the other did not"
    if found.what == "op":
        return "at one position they call different operations, so their code went different ways"
    return "sizes differ where gradients are summed when a rank skipped a part of the model"


def _sure(found: Disagreement, *, told: bool) -> float:
    """Another size may be mere data: then it is the smaller answer, unless torch compared the
    buckets of DDP, whose sizes depend on nothing but the code that ran."""
    if found.what == "size":
        return 0.7 if told and fingerprints.is_bucket(found) else 0.5
    return 0.75 if told else 0.7


@FAULT.explain
def only_a_few_came(wreckage: Wreckage) -> Diagnosis | None:
    """Most ranks never entered it and wait for nothing: those inside are the odd ones."""
    known = blame.of(wreckage)
    place, absent = known.place, known.census.roots
    if place is None or known.explained or known.disagreement or len(absent) <= len(place.waiting):
        return None
    return FAULT.diagnosis(
        f"only {blame.plain(place.waiting)} came to {place.title}; {blame.plain(absent)} never did "
        "and wait for nobody: a collective that only some ranks call",
        confidence=0.6,
        seen=blame.first_complaint(wreckage),
        evidence=blame.positions(wreckage),
        culprit=_named(place.waiting),
        victims=absent,
        fix=FIX,
        next=DETAIL,
        ruled_out=blame.ruled_out(wreckage),
        unknown=blame.unknown(wreckage, *absent[:1]),
    )


def _named(ranks: tuple[int, ...]) -> Culprit:
    return Culprit(rank=ranks[0]) if len(ranks) == 1 else Culprit(what=blame.plain(ranks))


@FAULT.explain
def they_wait_in_a_circle(wreckage: Wreckage) -> Diagnosis | None:
    """Everybody waits, each for somebody who waits elsewhere: no patience helps."""
    known = blame.of(wreckage)
    sides = [s for s in known.census.standstills if s.absent]
    if not known.census.ring or len(sides) < 2 or known.explained or known.disagreement:
        return None
    told = "; ".join(f"{blame.plain(side.waiting)} in {side.title}" for side in sides[:4])
    odd = disagreement.minority([side.waiting for side in sides])
    return FAULT.diagnosis(
        f"the ranks wait for each other in different groups ({told}): each would go on if the "
        "others came",
        confidence=0.75,
        seen=blame.first_complaint(wreckage),
        evidence=[Evidence(quote=f"waits in {s.title}", source="flight recorder", rank=r)
                  for s in sides for r in s.waiting[:1]],
        culprit=_named(odd) if odd else Culprit(what=told),
        victims=known.others(*odd),
        fix="call the collectives of all groups in the same order on every rank that is in both",
        next=DETAIL,
        ruled_out=blame.ruled_out(wreckage),
    )  # fmt: skip


@FAULT.explain
def horovod_has_parts_of_different_ranks(wreckage: Wreckage) -> Diagnosis | None:
    """Of two tensors that wait, each was brought by ranks that lack the other: whoever is merely
    late lacks them both."""
    ready = horovod_stall.ready_ranks(wreckage)
    crossed = [(a, b) for a in ready for b in ready if a - b and b - a]
    if not crossed or blame.of(wreckage).explained:
        return None
    one, other = sorted(crossed[0], key=min)
    return FAULT.diagnosis(
        f"Horovod holds a tensor that only {blame.plain(one)} brought and another that only "
        f"{blame.plain(other)} brought: they submit different ones, so their code went different "
        "ways",
        confidence=0.65,
        seen=wreckage.seen(HOROVOD_READY),
        culprit=Culprit(what=f"{blame.plain(one)} versus {blame.plain(other)}"),
        victims=one | other,
        fix=FIX,
        next="export HOROVOD_TIMELINE=timeline.json",
    )


@FAULT.explain
def horovod_lists_different_tensors(wreckage: Wreckage) -> Diagnosis | None:
    missing = horovod_stall.missing_tensors(wreckage)
    if len(set(map(tuple, missing.values()))) < 2 or blame.of(wreckage).explained:
        return None
    seen: tuple[Sighting, ...] = tuple(s for s in wreckage.sightings if "tensors" in s.fields)
    return FAULT.diagnosis(
        "Horovod's stall report shows ranks that each lack other tensors: they submit different "
        "ones, so their code went different ways",
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
    for doubt in swallowed_errors.doubts(program):
        yield FAULT.warning(doubt.summary, reason=doubt.reason, fix=doubt.fix, at=doubt.place)


MEANS = "a collective ends when every rank of its group has called it; "


@FAULT.lint_python
def only_some_ranks_come(program: Program, _: Source) -> Iterator[Finding]:
    for one in missed_collectives.missed(program):
        meeting, first = one.stop.meeting, one.stop.at.written
        name = f"{first}, which calls {meeting.title}," if one.stop.deep else first
        seen = f"{name} runs only {one.split.where}"
        reason = (
            "those that call it wait for the others until a timeout, or are matched with the next "
            "collective that these call"
        )
        fix = f"move {first}(…) out of the condition, so that every rank of the group calls it; "
        fix += "keep only what one rank shall do (print, save) inside"
        if meeting.name in NEW_GROUPS:
            reason = "that holds for making a group too, members or not; ranks that make other "
            reason += "groups meanwhile take them for this one, and members of both mix"
            fix = f"let every rank call {meeting.call.written} for every group, in the same order, "
            fix += "and keep the one it is a member of"
        if one.left:
            seen = f"ranks {one.split.where} {one.word} here, before {one.stop.title}"
            reason = "those that go on wait there for the ones that left, until a timeout"
            fix = f"let every rank reach {meeting.call.written}; where all shall stop, broadcast "
            fix += "the decision and let every rank test what it received"
        if meeting.group and not one.sure:
            reason += f" (unless nobody else is a member of `{meeting.group}`)"
        tell = FAULT.error if one.sure else FAULT.warning
        yield tell(seen, reason=MEANS + reason, fix=fix, at=program.place(one.at))
