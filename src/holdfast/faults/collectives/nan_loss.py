"""The loss or the gradients are NaN or infinite.

What you see   The loss in the log turns into `nan` or `inf` and stays so. The job runs on at full
               speed, and every step and checkpoint from there on is worthless.
Why            One value that is not finite is enough: the all-reduce brings its gradient to every
               rank, and the optimizer writes it into every parameter. It begins with a batch (a
               division by zero, the logarithm of 0, a label out of range), a learning rate that is
               too high, an overflow in half precision, or a GPU that computes wrongly.
How to be sure The rank whose own loss was the first says where to look: if one rank is first and
               the others follow a step later, its batch or its GPU is the cause; if all ranks are
               first in the same step, the learning rate or the precision is.
               `torch.autograd.detect_anomaly()` names the operation.
Fix            Resume from a checkpoint before that step. Look at that rank's batch; clip gradients;
               lower the learning rate or lengthen the warm-up; train in bf16, or in fp16 with a
               GradScaler. Stop on it: `if not torch.isfinite(loss): raise …`.
Known limits   `holdfast run` sees losses that `backward()` starts from and norms of torch's
               `clip_grad_norm_`, in steps that an optimizer of torch took; inside CUDA graphs, in
               DeepSpeed's and Megatron's own engines, and in ranks that the script itself spawned
               it sees neither. A loss that is NaN for fewer than three steps in a row is only
               counted in the report: over an empty batch it is NaN once and changes nothing.
               holdfast names it and lets the job run.
Sources        torch 2.13.0: torch/autograd/__init__.py (_make_grads), torch/nn/utils/clip_grad.py
               https://docs.pytorch.org/docs/stable/autograd.html#anomaly-detection
               NVIDIA/Megatron-LM: pretrain_gpt.py, megatron/core/rerun_state_machine.py (texts)
               Lightning-AI/pytorch-lightning: utilities (check_finite_loss)
               deepspeedai/DeepSpeed: deepspeed/runtime/fp16/loss_scaler.py
               facebookresearch/fairseq: fairseq/optim/dynamic_loss_scaler.py
               https://docs.pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html (NaN
               where all targets are ignored)
               mosaicml/composer: composer/callbacks/nan_monitor.py
               torch 2.15.0: torch/csrc/distributed/c10d/NanCheck.cu, NanCheck.cpp
"""

from __future__ import annotations

import re

from holdfast import text
from holdfast.analysis.job import first_not_finite, phrases
from holdfast.analysis.job.first_not_finite import FirstNotFinite
from holdfast.analysis.logs import sightings
from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.scene.scene import Scene
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Evidence, Verdict

FAULT = Fault(
    code="HOLD627",
    slug="nan-loss",
    traits=RunTraits(priority=606, is_news=True, never_acts=True),
    related=("replica-mismatch", "gpu-hardware", "cuda-assert"),
)

FIND_OUT = "find the operation with `torch.autograd.detect_anomaly()`"


# --- in a running job ---------------------------------------------------------------------------


@FAULT.run
def loss_or_gradients_are_not_finite(scene: Scene) -> Verdict | None:
    first = first_not_finite.find(
        [one for one in scene.numbers.not_finite if one.attempt == scene.attempt],
        living={view.rank for view in scene.ranks if view.death is None and view.beat},
        now=scene.now,
    )
    if first is None:
        return None
    # Gradients have been reduced: with FSDP they are NaN on the rank that holds their shard.
    others = bool(first.followed) or len(first.ranks) < len(scene.ranks)
    culprits = first.ranks if first.what == "loss" and others else ()
    step = scene.checkpoints.base + first.step
    return FAULT.verdict(
        f"{_what(scene, first, named=bool(culprits))} at step {step}{_then(first)}; steps "
        "and checkpoints since then are lost",
        ranks=culprits,
        victims=first.followed if culprits else (),
        certain=False,
        fix=_fix(scene, step, culprits),
        evidence=[
            Evidence(quote=f"{first.what} {first.value} at step {step}", rank=rank)
            for rank in first.ranks[:4]
        ],
    )


def _what(scene: Scene, first: FirstNotFinite, *, named: bool) -> str:
    are = "is" if first.what == "loss" else "are"
    if not named:
        on = f" on {text.ranks(first.ranks)}" if len(scene.ranks) > 1 else ""
        return f"the {first.what} {are} {first.value}{on}{' at once' * (len(first.ranks) > 1)}"
    known = {view.rank for view in scene.ranks}.issuperset(first.ranks)
    who = phrases.who(scene, first.ranks) if known else text.ranks(first.ranks)
    return f"the {first.what} of {who} {are} {first.value}" + (", first," if first.followed else "")


def _then(first: FirstNotFinite) -> str:
    if not first.followed:
        return ""
    return f", later on {text.ranks(first.followed)}"


def _fix(scene: Scene, step: int, culprits: tuple[int, ...]) -> str:
    saved = [one for one in scene.checkpoints.saves if one.step < step]
    resume = f"resume from {saved[-1].path}" if saved else f"resume from before step {step}"
    look = f"look at the batch of {text.ranks(culprits)}" if culprits else (
        "lower the learning rate or clip gradients"
    )  # fmt: skip
    return f"stop the job; {look}, {FIND_OUT}; {resume}"


# --- in what is left of a job -------------------------------------------------------------------

COLONS = tuple(f":{' ' * width}" for width in range(9))  # numbers are often printed to a width
PRINTED = FAULT.log_pattern(
    "printed",
    r"(?:(?<!\w)(?P<before>\w{1,40}) )?(?<![\w/.-])"
    r"(?P<name>[\w/.-]{0,60}?(?:[Ll]oss(?:/train/total|_step)?|grad[_ ]norm))"
    r"['\"]?\s{0,12}[:=]?\s{0,12}(?:['\"]|tensor\()?"
    r"(?P<value>(?i:nan|-?inf(?:inity)?))(?:\.0)?\b(?!\w)",
    anchors=tuple(
        f"{name}{between}{value}"
        for name in ("loss", "Loss", "grad_norm")
        for between in (" ", "=", " = ", "': ", "': '", '": ', '": "', *COLONS)
        for value in ("nan", "inf", "NaN", "NAN", "INF", "Inf")
        if (between, value) != (" ", "inf")  # 'loss information'
    )
    + tuple(
        f"{name}{value}"
        for name in (
            "oss tensor(",
            "oss: tensor(",
            "oss=tensor(",
            "grad norm: ",
            "_loss_step=",
            "loss/train/total: ",
        )
        for value in ("nan", "inf")
    ),
    example="[rank2]: {'loss': nan, 'grad_norm': nan, 'learning_rate': 5e-05, 'epoch': 0.1}",
    role=Role.CONTEXT,
)
REFUSED = FAULT.log_pattern(
    "refused",
    r"The loss returned in `training_step` is (?:tensor\()?(?P<value>-?\w+)"
    r"|Rank (?P<rank>\d+)(?:,.*?iteration (?P<step>\d+))?: (?:found|Unexpected result).*"
    r"(?:NaN|Inf|nan|inf)|found (?:NaN|Inf) in local (?:forward loss|grad norm)"
    r"|Minimum loss scale reached|Current loss scale already at minimum"
    r"|The total norm of order \S+ for gradients from `parameters` is non-finite"
    r"|Function '(?P<function>\w+)' returned nan values in its \d+th output"
    # detectron2; torchvision's and DeiT's references; Composer; Lightning; fairseq.
    r"|Loss became infinite or NaN at iteration=(?P<iteration>\d+)"
    r"|Loss is (?:nan|inf|NaN), stopping training|Train loss (?:\w{1,60} )?contains a NaN"
    r"|Monitored metric \S*(?<!val_)loss = (?:nan|inf) is not finite|gradients are Nan/Inf"
    # torch's own check of what enters a collective (TORCH_NCCL_NAN_CHECK, TORCH_DIST_NAN_CHECK).
    r"|NanCheck\.cu:\d+.{0,200} Assertion `!isnan|NaN found in input tensor\.",
    anchors=(
        "The loss returned in `training_step` is",
        "in local forward loss calculation",
        "in local grad norm",
        "Minimum loss scale reached",
        "Current loss scale already at minimum",
        "for gradients from `parameters` is non-finite",
        "returned nan values in its",
        "Loss became infinite or NaN at iteration",
        ", stopping training",
        " contains a NaN",
        " is not finite",
        "gradients are Nan/Inf",
        "NanCheck.cu:",
        "NaN found in input tensor.",
    ),
    example="[rank3]: RuntimeError: Rank 3, node n7, device 3, iteration 2: Unexpected result nan "
    "(message='found NaN in local forward loss calculation')",
)
OTHER_LOSSES = re.compile(
    r"(?i)(?:^|[_/.-])(?:eval|val|valid|validation|test|dev|best|min|lowest)(?:$|[_/.-])"
)
STEP = re.compile(r"(?i)\b(?:step|iter|iteration|global_step)\b['\"]?\s{0,8}[:=]?\s{0,8}(\d+)")
LASTS = 3


@FAULT.explain
def loss_was_not_finite(wreckage: Wreckage) -> Diagnosis | None:
    refused = wreckage.seen(REFUSED)
    printed = [one for one in wreckage.seen(PRINTED) if _is_of_training(one)]
    if refused:
        return _refused(refused, printed)
    lines = sum(one.count for one in printed)
    if not printed or (lines < LASTS and "nan" not in _value(printed).lower()):
        return None  # an infinite loss once or twice: a scaler looks for its scale
    ranks = sightings.writers(printed)
    first = _first_of_several(printed)
    shown = printed[0] if first is None else next(s for s in printed if s.rank == first)
    return FAULT.diagnosis(
        f"the {_name(shown)} was {_value(printed).lower()}{_at_step(shown)}"
        + (
            f", on rank {first} first, later on the others"
            if first is not None
            else f", printed by {text.ranks(ranks)}"
            if ranks
            else ""
        )
        + (f", in {lines} lines" if lines > 1 else ""),
        confidence=0.55 if lines >= LASTS else 0.35,
        seen=[shown, *(one for one in printed if one is not shown)],
        culprit=Culprit(rank=first),
        fix=f"resume from a checkpoint before it; {FIND_OUT}; clip gradients or lower the learning "
        "rate",
        unknown=["which rank was first: trainers print the loss of one rank, or the mean of all"]
        if first is None
        else [],
    )


def _first_of_several(printed: list[Sighting]) -> int | None:
    """The rank whose own loss was not finite some steps before that of every other rank."""
    began: dict[int, int] = {}
    for one in printed:
        found = STEP.search(one.line.text)
        if one.rank is not None and found and "loss" in one.fields["name"].lower():
            step = int(found[1])
            began[one.rank] = min(step, began.get(one.rank, step))
    in_order = sorted(began, key=lambda rank: began[rank])
    alone = len(in_order) > 1 and began[in_order[0]] < began[in_order[1]]
    return in_order[0] if alone else None


def _refused(refused: tuple[Sighting, ...], printed: list[Sighting]) -> Diagnosis:
    """A trainer or torch itself stopped for it. Where it names a rank, that is where it was."""
    named = sightings.field(refused, "rank")
    own = any(
        word in refused[0].line.text for word in ("local", "training_step", "NanCheck", "input")
    )
    rank = int(named) if named else refused[0].rank if own else None
    function, step = (
        sightings.field(refused, "function"),
        (sightings.field(refused, "step") or sightings.field(refused, "iteration")),
    )
    said = [
        f"on rank {rank}" if rank is not None else "",
        f"at iteration {step}" if step else _at_step(printed[0]).strip() if printed else "",
        f"in the backward of {function}" if function else "",
    ]
    return FAULT.diagnosis(
        " ".join(["the loss or the gradients were not finite", *filter(None, said)])
        + ": the trainer stopped for it",
        confidence=0.9,
        seen=[*refused, *printed[:1]],
        culprit=Culprit(rank=rank, host=refused[0].line.host if rank is not None else ""),
        fix=f"resume from a checkpoint before it; look at the batch, {FIND_OUT}; clip gradients or "
        "lower the learning rate; with fp16 try bf16",
    )


def _is_of_training(one: Sighting) -> bool:
    names = (one.fields.get("name", ""), one.fields.get("before", ""))
    return not any(OTHER_LOSSES.search(name) for name in names)


def _name(one: Sighting) -> str:
    return "gradient norm" if one.fields.get("name", "").startswith("grad") else "loss"


def _value(seen: list[Sighting]) -> str:
    return sightings.field(seen, "value")


def _at_step(one: Sighting) -> str:
    found = STEP.search(one.line.text)
    return f" at step {found[1]}" if found else ""
