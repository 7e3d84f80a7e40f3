"""The ranks run out of data at different times.

What you see   The job hangs near the end of an epoch, then times out. One rank is in a barrier, an
               evaluation or a save after the loop; the others are still in backward().
Why            One rank got fewer batches: a dataset that does not divide evenly, a filter, an
               iterable dataset split by hand. It leaves the loop one step earlier, and its next
               collective meets the others' gradient all-reduce.
How to be sure Compare the number of batches per rank. holdfast sees that rank at a later line of
               the same function than the others, in another operation at the same position.
Fix            Use `drop_last=True` and a DistributedSampler (which pads), `with Join([model]):`
               around the loop, or stop all ranks together with an all_reduce of 'I have data'.
Known limits   Code that only that rank runs looks the same; the verdict says so. How many batches
               each rank had is not recorded.
Sources        https://docs.pytorch.org/tutorials/advanced/generic_join.html
               https://github.com/pytorch/pytorch/issues/141069
               torch/utils/data/distributed.py: padding
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast import text
from holdfast.analysis.collectives import call_sites, progress, waits
from holdfast.analysis.job import phrases, stall
from holdfast.analysis.logs import blame, odd_ranks
from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.scene import exits
from holdfast.analysis.scene.scene import Scene
from holdfast.analysis.source.program import Program
from holdfast.analysis.source.ranks import uneven_loops
from holdfast.analysis.source.source import Source
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding, Verdict

FAULT = Fault(
    code="HOLD603",
    slug="uneven-inputs",
    traits=RunTraits(priority=300),
    related=("collective-mismatch", "rank-conditional-code", "rank-exits-early"),
)


@FAULT.run
def rank_left_the_loop_early(scene: Scene) -> Verdict | None:
    found = waits.analyse(scene).mismatch
    if found is None or not progress.left_the_loop(scene, found):
        return None
    victims = exits.fallen(scene, found.odd)
    ahead = scene.rank(found.odd[0])
    part = progress.part(scene, found.right)
    lines = (call_sites.last_line(scene.rank(rank)) for rank in found.right)
    behind = next((f" ({line})" for line in lines if line), "")
    return FAULT.verdict(
        f"{phrases.who(scene, found.odd)} is past the loop, "
        f"{(ahead.death and call_sites.last_line(ahead)) or stall.place(ahead)}, while "
        f"{text.ranks(found.right)} {_is(found.right)} still in {part}{behind}: it had fewer "
        f"batches, or only it runs that code (collective #{found.sequence})",
        ranks=found.odd,
        victims=victims,
        certain=True,
        fix="use `drop_last=True`, a DistributedSampler, or `with Join([model]):` around the loop",
        evidence=[
            Evidence(quote=f"#{found.sequence} {kind}", source="flight recorder", rank=rank)
            for rank, kind in found.kinds.items()
        ],
    )


def _is(ranks: tuple[int, ...]) -> str:
    return text.plural(ranks, "is", "are")


# --- explain -------------------------------------------------------------------------------------

EXHAUSTED = FAULT.log_pattern(
    "exhausted",
    r"Detected at least one rank that exhausted inputs",
    anchors="at least one rank that exhausted inputs",
    example="RuntimeError: Detected at least one rank that exhausted inputs. Throwing across all "
    "ranks.",
)
EPOCH_END = FAULT.log_pattern(
    "epoch-end",
    r"[Ee]poch.{0,80}?\b100%\|.{0,120}?\b(?P<done>\d{1,12})/(?P<of>\d{1,12})"
    r"|^\s*100%\|\S*\s*\| ?(?P<all>\d+)/(?P<last>\d+)",
    anchors="100%|",
    example="Epoch 3: 100%|██████████| 500/500 [12:03<00:00,  1.45s/it]",
    role=Role.CONTEXT,
)
GRADIENTS = ("all_reduce", "reduce_scatter", "_reduce_scatter_base")
FIX = (
    "use `drop_last=True` and a DistributedSampler, or `with Join([model]):` around the loop; log "
    "`len(loader)` on every rank to compare"
)


@FAULT.explain
def join_reported_exhausted_inputs(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(EXHAUSTED)
    if not seen:
        return None
    return FAULT.diagnosis(
        "one rank ran out of batches before the others: Join noticed it and raised on all ranks",
        confidence=0.95,
        seen=seen,
        culprit=Culprit(),
        victims={s.rank for s in seen if s.rank is not None},
        fix=FIX + "; without throw_on_early_termination=True Join lets the others finish",
        unknown=("which rank ran out: all ranks raise the same message",),
    )


@FAULT.explain
def some_ranks_were_past_the_loop(wreckage: Wreckage) -> Diagnosis | None:
    """One side still reduces gradients, the other is in what comes after an epoch."""
    known = blame.of(wreckage)
    found = known.disagreement
    if found is None or found.what == "size" or known.explained:
        return None
    steps = [any(op in what for op in GRADIENTS) for what in found.sides]
    at_end = _near_the_end(wreckage)
    if found.what == "op" and not (any(steps) and not all(steps)):
        return None
    if found.what == "count" and not at_end:
        return None
    return FAULT.diagnosis(
        f"some ranks were still reducing gradients while others were past the loop "
        f"({found.words()}): these had fewer batches, or only they run that code",
        confidence=0.6 if at_end else 0.4,
        seen=(*at_end[-1:], *blame.first_complaint(wreckage)),
        evidence=odd_ranks.evidence(found),
        culprit=odd_ranks.culprit(found),
        victims=found.others,
        fix=FIX,
        ruled_out=blame.ruled_out(wreckage),
        unknown=("how many batches each rank had",),
    )


def _near_the_end(wreckage: Wreckage) -> tuple[Sighting, ...]:
    """An epoch's progress bar was full before the first timeout."""
    timeouts = blame.first_complaint(wreckage)
    first = min((s.order for s in timeouts), default=0)
    return tuple(s for s in wreckage.seen(EPOCH_END) if s.order < first)


# --- in what a user wrote ------------------------------------------------------------------------

WAYS_OUT = (
    "give every rank the same number of batches (a DistributedSampler pads, drop_last cuts), wrap "
    "the loop in `with Join([model]):`, or stop together with an all_reduce of 'I have data'"
)


@FAULT.lint_python
def loop_length_differs_between_ranks(program: Program, _: Source) -> Iterator[Finding]:
    for one in uneven_loops.uneven_loops(program):
        tell = FAULT.error if one.sure else FAULT.warning
        yield tell(
            f"{one.what} in a loop over {one.over}, whose length "
            f"{'differs' if one.sure else 'may differ'} from rank to rank",
            reason="the rank with fewer iterations leaves the loop, and the others wait for it in "
            "the next iteration until a timeout",
            fix=WAYS_OUT,
            at=one.place,
        )
