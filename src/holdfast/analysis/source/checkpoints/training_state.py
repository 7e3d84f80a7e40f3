"""The parts of a training whose state a checkpoint must hold: found by what makes them."""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from holdfast.analysis.source.program import Call, Program, constant, dotted
from holdfast.analysis.source.python.flow import method_of

SCHEDULERS = re.compile(
    r"torch\.optim\.lr_scheduler\.[A-Z]\w+|transformers\.(?:\w+\.)?get_\w*schedul\w+"
)
OPTIMIZERS = re.compile(r"torch\.optim\.(?:\w+\.)?[A-Z]\w+")
SCALERS = re.compile(r"torch\.(?:cuda\.)?amp\.(?:grad_scaler\.)?GradScaler")


class TrainingParts(NamedTuple):
    optimizers: list[Call]
    schedulers: list[Call]
    scalers: list[Call]

    @property
    def momentum(self) -> bool:
        """Some optimizer keeps more than its learning rate: all but plain SGD."""
        return any(not _plain_sgd(call) for call in self.optimizers)


def training_parts(program: Program) -> TrainingParts:
    schedulers = [call for call in program.calls if SCHEDULERS.fullmatch(call.name)]
    made = [call for call in program.calls if OPTIMIZERS.fullmatch(call.name)]
    return TrainingParts(
        [call for call in made if call not in schedulers],
        schedulers,
        [call for call in program.calls if SCALERS.fullmatch(call.name)],
    )


def bound_to(program: Program, calls: list[Call]) -> set[str]:
    """The names that what these calls make goes by."""
    found: set[str] = set()
    for call in calls:
        above = program.parents.get(call.node)
        if isinstance(above, ast.Assign):
            found |= {dotted(target) for target in above.targets}
        elif isinstance(above, ast.AnnAssign):
            found.add(dotted(above.target))
    return found - {""}


def _plain_sgd(call: Call) -> bool:
    if not call.name.endswith(".SGD") or call.starred:
        return False
    given = call.argument(2, "momentum")
    return given is None or constant(given) in (0, 0.0)


def first_backward(program: Program) -> Call | None:
    """The first `.backward()` of the script: it is what makes it a training."""
    return next((call for call in program.calls if method_of(call) == "backward"), None)
