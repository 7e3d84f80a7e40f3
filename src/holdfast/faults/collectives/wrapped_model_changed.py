"""The model was changed after DistributedDataParallel had wrapped it.

What you see   Nothing at first: no error, no hang. The ranks train apart: their losses drift, the
               checkpoint holds the model of one rank, and more GPUs give no better result. Or the
               model is wrapped twice, and every step sends all gradients twice.
Why            DistributedDataParallel registers a hook on the gradient of every parameter when it
               is constructed. `.to()`, `.cuda()` and `.half()` give a parameter new storage; where
               that changes the device or the type, autograd starts a new gradient accumulator for
               it, and the hooks remain on the old one: the gradients are never averaged again. A
               second wrapper adds a second set of hooks, so that every gradient is averaged twice.
How to be sure After one backward pass compare a gradient between the ranks:
               `dist.all_gather(others, model.module.weight.grad)`; they must be equal.
Fix            Move and convert the model first, wrap it last, and wrap it once:
               `model = DDP(Net().to(device), device_ids=[device])`.
Known limits   Seen only where the model is made, wrapped and changed in one function of one file,
               and by a class whose name says so; a move to the device that the model is on
               already changes nothing, and is not reported.
Sources        https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
               (Warning: never change the model's parameters after wrapping)
               pytorch/pytorch torch/csrc/autograd/variable.cpp: VariableHooks::set_data
               pytorch/pytorch torch/nn/modules/module.py: Module._apply
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.analysis.source.collectives.wrapped_models import changed_models
from holdfast.analysis.source.program import Program
from holdfast.analysis.source.source import Source
from holdfast.fault import Fault
from holdfast.findings import Finding

FAULT = Fault(
    code="HOLD628",
    slug="wrapped-model-changed",
    related=("unused-parameters", "collective-mismatch"),
)


@FAULT.lint_python
def model_changes_after_wrapping(program: Program, _: Source) -> Iterator[Finding]:
    for one in changed_models(program):
        line, at = one.wrap.node.lineno, program.place(one.change.node)
        if one.again:
            yield FAULT.warning(
                f"the model is wrapped a second time (first in line {line})",
                reason="both wrappers average every gradient, so each step sends all of them twice",
                fix=f"drop one of the two {one.change.written}(…)",
                at=at,
            )
            continue
        speak = FAULT.error if one.sure else FAULT.warning
        method = f".{one.change.node.func.attr}()"  # type: ignore[attr-defined]
        yield speak(
            f"{method} changes the model after it was wrapped in line {line}",
            reason="the parameters lose the hooks that DistributedDataParallel put on them: their "
            "gradients are no longer averaged, and no error says so",
            fix=f"call {method} before {one.wrap.written}(…)",
            at=at,
        )
