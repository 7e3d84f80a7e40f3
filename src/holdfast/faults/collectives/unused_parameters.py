"""DDP waited for gradients that never came.

What you see   `Expected to have finished reduction in the prior iteration before starting a new
               one`, in the second forward pass, with a list of parameters `which did not receive
               grad for rank N`. The other ranks may hang instead.
Why            DistributedDataParallel counts one gradient for every parameter and sends a bucket
               when it is full. A parameter that took no part in the loss (a branch not taken, an
               output left out, a frozen part that still requires gradients) leaves its bucket
               waiting forever. `marked as ready twice` is the opposite: one parameter delivered its
               gradient twice in one backward pass.
How to be sure TORCH_DISTRIBUTED_DEBUG=DETAIL makes the message name the parameters. The same list
               on every rank means a part of the model that is never used; different lists mean a
               branch that depends on the data.
Fix            Make every parameter reach the loss, or exclude what is not trained:
               `p.requires_grad_(False)` before the model is wrapped. If the branch is intended, use
               DistributedDataParallel(model, find_unused_parameters=True); it costs a walk over the
               graph in every step.
Known limits   Only DDP's own messages are recognised: a job that hangs instead is reported as
               collective-mismatch or rank-stuck.
Sources        pytorch/pytorch torch/csrc/distributed/c10d/reducer.cpp
               https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
               https://github.com/pytorch/pytorch/issues/43259
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast import text
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis

FAULT = Fault(
    code="HOLD604",
    slug="unused-parameters",
    related=("collective-mismatch", "rank-conditional-code"),
)

LONGEST = 80
"""characters of a list of parameters that fit into a sentence"""

UNFINISHED = FAULT.log_pattern(
    "reduction",
    r"finished reduction in the prior iteration|not used in producing (?:the )?loss",
    anchors=("finished reduction in the prior", "not used in producing"),
    example="RuntimeError: Expected to have finished reduction in the prior iteration before "
    "starting a new one. This error indicates that your module has parameters that were not used "
    "in producing loss.",
)
WITHOUT_GRAD = FAULT.log_pattern(
    "without-grad",
    r"Parameter(?P<kind>s| indices) which did not receive grad for rank (?P<rank>\d+): ?"
    r"(?P<which>.*\S)?",
    anchors="did not receive grad for rank",
    example="Parameter indices which did not receive grad for rank 3: 282 283",
)
GRAPH_CHANGED = FAULT.log_pattern(
    "graph-changed",
    r"training graph has changed in this iteration",
    anchors="training graph has changed",
    example="RuntimeError: Your training graph has changed in this iteration, e.g., one parameter "
    "is unused in first iteration, but then got used in the second iteration. this is not "
    "compatible with static_graph set to True.",
)
TWICE = FAULT.log_pattern(
    "twice",
    r"mark a variable ready only once"
    r"|(?P<which>Parameter at index \d+(?: with name \S+)?)? ?has been marked as ready twice",
    anchors=("variable ready only once", "marked as ready twice"),
    example="Parameter at index 5 with name head.weight has been marked as ready twice. This means "
    "that multiple autograd engine hooks have fired for this particular parameter",
)


@FAULT.explain
def gradients_never_came(wreckage: Wreckage) -> Diagnosis | None:
    changed = wreckage.seen(GRAPH_CHANGED)
    if changed:
        return _graph_changed(changed)
    seen = wreckage.seen(UNFINISHED, WITHOUT_GRAD)
    if not seen:
        return None
    lists = [one for one in seen if "rank" in one.fields]
    ranks = {int(one.fields["rank"]) for one in lists} or {
        one.rank for one in seen if one.rank is not None
    }
    which = _which(lists)
    who = text.ranks(ranks) if ranks else "one rank"
    return FAULT.diagnosis(
        f"DDP on {who} waited for gradients of {which or 'parameters'} that took no part in the "
        "last loss, so the reduction of that step never finished",
        confidence=0.95,
        seen=(*lists, *(one for one in seen if one not in lists)),
        culprit=Culprit(rank=min(ranks) if len(ranks) == 1 else None, what=which),
        fix="make these parameters reach the loss on every rank, or freeze them "
        "(`requires_grad_(False)`) before DDP wraps the model; if the branch is intended, use "
        "`DistributedDataParallel(model, find_unused_parameters=True)`",
        next="" if _named(lists) else "export TORCH_DISTRIBUTED_DEBUG=DETAIL",
        unknown=() if lists else ("which parameters: the list is not in the log",),
    )


def _named(lists: Sequence[Sighting]) -> bool:
    return any(one.fields["kind"] == "s" for one in lists)


def _which(lists: Sequence[Sighting]) -> str:
    """'parameters 282 283', or their names where the log has them; '' where it has neither."""
    if not lists:
        return ""
    best = next((one for one in lists if one.fields["kind"] == "s"), lists[0])
    which = best.fields.get("which", "")
    if len(which) > LONGEST:
        which = which[:LONGEST].rsplit(" ", 1)[0].rstrip(",") + " …"
    return f"parameters {which}" if which else ""


def _graph_changed(seen: Sequence[Sighting]) -> Diagnosis:
    return FAULT.diagnosis(
        "DDP was configured for a graph that never changes (static_graph=True), but this step used "
        "a different set of parameters than the first",
        confidence=0.92,
        seen=seen,
        fix="wrap the model without static_graph; if some parameters are unused in some steps, use "
        "`find_unused_parameters=True`",
    )


@FAULT.explain
def gradient_came_twice(wreckage: Wreckage) -> Diagnosis | None:
    """Not a missing gradient but one too many; it breaks DDP's count as well."""
    seen = wreckage.seen(TWICE)
    if not seen or wreckage.seen(UNFINISHED, WITHOUT_GRAD):
        return None
    which = next((one.fields["which"] for one in seen if one.fields.get("which")), "")
    return FAULT.diagnosis(
        f"DDP got the gradient of {which[0].lower() + which[1:] if which else 'a parameter'} twice "
        "in one backward pass: the module ran several times for one backward, or re-entrant "
        "activation checkpointing recomputed it",
        confidence=0.6,
        seen=seen,
        culprit=Culprit(rank=seen[0].rank, what=which),
        fix="use torch.utils.checkpoint with use_reentrant=False, call the wrapped module once per "
        "backward, or set static_graph=True if the graph really never changes; "
        "find_unused_parameters=True combined with either of them causes this error",
        next="export TORCH_DISTRIBUTED_DEBUG=DETAIL",
    )
