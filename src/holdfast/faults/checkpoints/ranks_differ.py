"""Ranks hold different state, and a checkpoint would hold only rank 0's.

What you see   With holdfast: `rank 1 has other values than rank 0, and only rank 0's would be
               saved`, at the second step. Without it nothing: rank 0 saves for days, and the first
               resume gives every rank rank 0's weights, or an optimizer without its momentum, or
               fails with shapes that do not match.
Why            With plain data parallelism all ranks hold the same bits, so one copy is enough. With
               pipeline stages, experts, tensor parallelism by hand, or an optimizer that keeps a
               part on each rank (ZeRO, Muon, Shampoo), every rank holds something else. Replicas
               that nothing synchronizes drift apart in the same way.
How to be sure holdfast compares names, shapes and some values of parameters and optimizer state on
               all ranks in the first steps, and names the first that differ.
Fix            Let each rank save its own: `State(…, per_rank=("model", "optimizer"))`; the number
               of ranks must then stay the same. Where ranks are meant to be equal, look for what
               does not synchronize: a model not wrapped in DistributedDataParallel, another seed on
               each rank, an optimizer that steps on some ranks only. If rank 0's is right for all:
               HOLDFAST_ACCEPT=ranks.
Known limits   A few elements of each tensor are compared, once; what differs elsewhere, or begins
               to differ later, is not seen. Buffers, such as batch norm's statistics, may differ:
               rank 0's are saved.
Sources        https://docs.pytorch.org/docs/stable/notes/ddp.html (replicas start equal and apply
               the same gradients)
               https://docs.pytorch.org/docs/stable/distributed.pipelining.html
               https://github.com/KellerJordan/Muon
"""

from __future__ import annotations

from holdfast.analysis.job import resume_refused
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.scene.scene import Scene
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Verdict

FAULT = Fault(
    code="HOLD811",
    slug="ranks-differ",
    traits=RunTraits(priority=246),
    related=("config-changed", "world-size-mismatch", "checkpoint-lacks-state"),
)


@FAULT.run
def ranks_refused_to_save(scene: Scene) -> Verdict | None:
    return resume_refused.verdict(FAULT.verdict, scene, FAULT.slug)


# --- in what is left of a job -------------------------------------------------------------------

OWN_WORDS = FAULT.log_pattern(
    "holdfast",
    r"(?P<ranks>ranks? [0-9,-]{1,80}) (?:has|have) (?P<what>other [a-z ]{1,40}|tensors of other "
    r"shapes) than rank 0, and only rank 0's would be saved \((?P<which>.{1,400}?)\)",
    anchors="only rank 0's would be saved",
    example="holdfast.errors.RanksDiffer: rank 1 has other values than rank 0, and only rank 0's "
    "would be saved (model.fc.weight; 3 more): usual for pipeline stages [ranks-differ]",
)


@FAULT.explain
def ranks_held_different_state(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(OWN_WORDS)
    if not seen:
        return None
    fields = seen[0].fields
    return FAULT.diagnosis(
        f"{fields['ranks']} held {fields['what']} than rank 0 ({fields['which']}), and a "
        "checkpoint would have held only rank 0's",
        confidence=0.96,
        seen=seen,
        culprit=Culprit(what=fields["which"].split(":")[0].split(";")[0]),
        fix='let each rank save its own: `State(…, per_rank=("model", "optimizer"))`; where the '
        "ranks are meant to be equal, find what does not synchronize them; if rank 0's is right "
        "for all, set HOLDFAST_ACCEPT=ranks",
    )
