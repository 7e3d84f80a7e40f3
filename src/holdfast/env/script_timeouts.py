"""The timeouts that a script gives itself; read from its text, never run."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator

from holdfast.analysis.source.collectives import timeout_arguments
from holdfast.analysis.source.collectives.torch_calls import distributed
from holdfast.analysis.source.program import Call, Program, constant
from holdfast.analysis.source.python import durations
from holdfast.analysis.source.python.name_values import names
from holdfast.env.job import Asked

MAKES_GROUPS = frozenset(
    ["init_process_group", "new_group", "new_subgroups", "new_subgroups_by_enumeration"]
)
WHOLE_GROUP = frozenset(
    ["init_process_group", "init_distributed", "InitProcessGroupKwargs", "TrainingArguments"]
)
"""what decides the timeout of the default group"""


def read(text: str, file: str) -> Program:
    """Parsed, never run. Raises SyntaxError or ValueError where Python would."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the user's literals
        return Program(ast.parse(text), text, file)


def asked(program: Program) -> tuple[Asked, ...]:
    """Every call that gives a timeout, or makes a group without giving one, in order."""
    given = {id(one.call.node): one for one in timeout_arguments.timeout_arguments(program)}
    found: list[Asked] = []
    for call in program.calls:
        one = given.get(id(call.node))
        if one is not None:
            found.append(_with(program, call, one.function, one.value))
        elif (op := distributed(program, call)) in MAKES_GROUPS:
            found.append(_without(program, call, op))
        else:
            found.extend(_of_a_trainer(program, call))
    return tuple(found)


def _with(program: Program, call: Call, function: str, value: ast.expr) -> Asked:
    seconds = durations.seconds(program, value)
    if seconds is None:
        seconds = durations.number(program, value)  # a store takes a float as seconds
    nothing = isinstance(value, ast.Constant) and value.value is None
    return Asked(
        call=function,
        seconds=seconds,
        place=program.place(value),
        backend=_backend(program, call, function),
        given=not nothing,
    )


def _without(program: Program, call: Call, op: str) -> Asked:
    """`**options` may hide one."""
    return Asked(
        call=op,
        seconds=None,
        place=program.place(call.node),
        backend=_backend(program, call, op),
        given=call.starred,
    )


def _of_a_trainer(program: Program, call: Call) -> Iterator[Asked]:
    if call.name.startswith("transformers.") and call.method.endswith("TrainingArguments"):
        value = call.keyword("ddp_timeout")
        if value is not None:
            yield Asked(
                call="TrainingArguments",
                seconds=durations.number(program, value),
                place=program.place(value),
            )


def _backend(program: Program, call: Call, function: str) -> str:
    position = 0 if function in ("init_process_group", "init_distributed") else 2
    node = call.argument(position, "backend") or call.keyword("dist_backend")
    if node is None:
        # torch takes the backend of device_id=, where that is given.
        hidden = call.starred or call.keyword("device_id") is not None
        return "none" if function == "init_process_group" and not hidden else ""
    value = constant(names(program).follow(node))
    if not isinstance(value, str):
        return ""
    return "several" if ":" in value else value.lower()


def packages(program: Program) -> frozenset[str]:
    """The top-level names of all that it imports."""
    dotted = [*program.imports.values(), *program.stars]
    return frozenset(name.partition(".")[0] for name in dotted if not name.startswith("."))
