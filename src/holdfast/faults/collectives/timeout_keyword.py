"""A timeout is passed where none is accepted, or not as a timedelta.

What you see   `TypeError: all_reduce() got an unexpected keyword argument 'timeout'`, or `Expected
               timeout argument to be of type datetime.timedelta, got 1800`, or `NameError: name
               'timedelta' is not defined`: at the first call, on every rank. Or no error, and a
               timeout that never takes effect.
Why            Collectives have no timeout of their own: the group has one. `timeout=` is accepted
               by init_process_group, new_group, new_subgroups, split_group and monitored_barrier,
               and by barrier since torch 2.12. It must be a datetime.timedelta. The first
               argument of timedelta counts days.
How to be sure `python -c "import inspect, torch.distributed as d; print(inspect.signature(
               d.all_reduce))"`, with the torch that the job uses.
Fix            For one call: `work = dist.all_reduce(x, async_op=True)`, then
               `work.wait(timedelta(seconds=60))`. For all calls of a group:
               `dist.init_process_group(…, timeout=timedelta(minutes=10))`.
Known limits   Values that are computed at run time or come from another file are not judged.
Sources        torch 2.9.0 to 2.13.0: torch/distributed/distributed_c10d.py (the signatures, and
               _check_valid_timeout)
               https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.init_process_group
               https://docs.python.org/3/library/datetime.html#timedelta-objects
               https://pybind11.readthedocs.io/en/stable/advanced/cast/chrono.html (float to
               duration)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from holdfast.analysis.source.collectives.communication import exchanges
from holdfast.analysis.source.collectives.timeout_arguments import (
    TimeoutArgument,
    takes_none,
    timeout_arguments,
)
from holdfast.analysis.source.collectives.torch_calls import (
    BARRIER_TAKES_TIMEOUT,
    COLLECTIVES,
    distributed,
    torch_ops,
)
from holdfast.analysis.source.program import Call, Function, Program, dotted
from holdfast.analysis.source.python import durations
from holdfast.analysis.source.source import Source
from holdfast.analysis.versions import release
from holdfast.fault import Fault
from holdfast.findings import Finding

FAULT = Fault(
    code="HOLD613",
    slug="timeout-keyword",
    related=("timeout-text", "timer-as-timeout", "clocks-inconsistent"),
)

OBJECTS = re.compile(r"object|monitored|barrier")
"""they have no async_op, or nothing to wait for"""
TRAINERS = ("transformers.", "trl.")
LIMITED = re.compile(r"(timeout|time_limit)(_s|_sec|_secs|_seconds|_ms|_minutes)?")


@FAULT.lint_python
def call_accepts_no_timeout(program: Program, source: Source) -> Iterator[Finding]:
    for written in program.calls:
        keyword = next((k for k in written.node.keywords if k.arg == "timeout"), None)
        if keyword is None:
            continue
        call = _as_made(program, written)
        if takes_none(program, call):
            yield FAULT.error(
                f"{call.written} has no timeout=: this raises TypeError",
                reason="the timeout belongs to the group, not to the call; every rank fails here "
                "at once",
                fix=_instead(program, call),
                at=program.place(keyword),
            )
        elif distributed(program, call) == "barrier" and _too_old(source):
            yield FAULT.error(
                f"{call.written} has no timeout= in torch {source.here.torch}: this raises "
                "TypeError",
                reason="barrier(timeout=…) was added in torch 2.12",
                fix="use `dist.monitored_barrier(timeout=timedelta(…))` on a Gloo group, which "
                "also names the missing ranks; or torch 2.12",
                at=program.place(keyword),
            )


def _as_made(program: Program, call: Call) -> Call:
    """`partial(dist.all_reduce, timeout=…)` as the call that it becomes."""
    if call.name != "functools.partial" or not call.node.args:
        return call
    function = call.node.args[0]
    return Call(call.node, program.name_of(function), dotted(function))


def _too_old(source: Source) -> bool:
    return () < release(source.here.torch) < BARRIER_TAKES_TIMEOUT


def _instead(program: Program, call: Call) -> str:
    op = distributed(program, call)
    module = call.written.rpartition(".")[0]
    prefix = f"{module}." if module else ""
    if op in ("send", "recv"):
        return f"`{prefix}i{op}(…).wait(timedelta(seconds=60))`"
    if op in ("isend", "irecv", "batch_isend_irecv"):
        return f"`work = {call.written}(…)`, then `work.wait(timedelta(seconds=60))`"
    if op not in COLLECTIVES or OBJECTS.search(op):
        return (
            "give the group a timeout: `dist.init_process_group(…, timeout=timedelta(minutes=10))`"
        )
    return (
        f"`work = {call.written}(…, async_op=True)`, then `work.wait(timedelta(seconds=60))`; or "
        "give the group a timeout in init_process_group"
    )


@FAULT.lint_python
def timeout_is_not_a_timedelta(program: Program, source: Source) -> Iterator[Finding]:
    for one in timeout_arguments(program):
        if one.function == "barrier" and _too_old(source):
            continue
        kind = durations.number_kind(program, one.value)
        if kind in ("int", "str") or (kind == "float" and not one.floats):
            yield _number(program, one, kind)
        elif isinstance(one.value, ast.Call):
            yield from _timedelta(program, one.value)


def _number(program: Program, one: TimeoutArgument, kind: str) -> Finding:
    text = ast.unparse(one.value)
    many = durations.number(program, one.value)
    plain = many is None or isinstance(one.value, ast.Constant)
    shown = text if plain else f"{text}, which is {many:g}"
    return FAULT.error(
        f"the timeout of {one.call.written or one.function} is {shown}: it must be a timedelta",
        reason=f"{'a number' if kind != 'str' else 'text'} raises TypeError"
        + (", before any rank has joined" if one.function == "init_process_group" else ""),
        fix=f"`timeout=timedelta(seconds={text})` after `from datetime import timedelta`"
        if kind != "str" and "total_seconds" not in text
        else "`timeout=timedelta(seconds=…)` after `from datetime import timedelta`",
        at=program.place(one.value),
    )


def _timedelta(program: Program, value: ast.Call) -> Iterator[Finding]:
    if not durations.is_timedelta(program, value):
        return
    wrong = next((k for k in value.keywords if k.arg and k.arg not in durations.PARTS), None)
    if wrong is not None:
        yield FAULT.error(
            f"timedelta has no argument {wrong.arg!r}: this raises TypeError",
            reason=f"it takes {', '.join(durations.PARTS)}",
            fix="`timedelta(seconds=…)` or `timedelta(minutes=…)`",
            at=program.place(wrong),
        )
    days = durations.number(program, value.args[0]) if len(value.args) == 1 else None
    if days is not None and days > 1 and not value.keywords:
        yield FAULT.warning(
            f"{ast.unparse(value)} is {days:g} days",
            reason="the first argument of timedelta counts days, so this timeout never ends a "
            "hang; seconds were probably meant",
            fix=f"`timedelta(seconds={ast.unparse(value.args[0])})`, or write `days=`",
            at=program.place(value),
        )


@FAULT.lint_python
def ddp_timeout_is_a_timedelta(program: Program, _: Source) -> Iterator[Finding]:
    """The Trainer's ddp_timeout goes into `timedelta(seconds=…)` itself."""
    for call in program.calls:
        value = call.keyword("ddp_timeout") if call.name.startswith(TRAINERS) else None
        length = durations.seconds(program, value) if value is not None else None
        if program is not None and value is not None and length is not None:
            yield FAULT.error(
                "ddp_timeout counts seconds: a timedelta raises TypeError",
                reason="the Trainer passes it to timedelta(seconds=…)",
                fix=f"`ddp_timeout={length:g}`",
                at=program.place(value),
            )


# --- forgotten imports ----------------------------------------------------------------------------


@FAULT.lint_python
def timedelta_is_not_imported(program: Program, source: Source) -> Iterator[Finding]:
    """An excerpt is judged only if it has imports: otherwise they are elsewhere."""
    if program.stars or not (source.complete or _has_imports(program)):
        return
    told = [call.keyword("timeout") for call, _ in torch_ops(program)]
    values = dict.fromkeys([*told, *(one.value for one in timeout_arguments(program))])
    for value in values:
        if isinstance(value, ast.Call):
            yield from _unknown_name(source, program, value)


def _has_imports(program: Program) -> bool:
    first = next(iter(program.tree.body), None)
    return isinstance(first, ast.Import | ast.ImportFrom)


def _unknown_name(source: Source, program: Program, value: ast.Call) -> Iterator[Finding]:
    written = dotted(value.func)
    root = written.partition(".")[0]
    report = FAULT.error if source.complete else FAULT.warning
    if program.name_of(value.func) == "datetime.datetime.timedelta":
        yield report(
            f"{written}: the class datetime has no timedelta, this raises AttributeError",
            reason="`from datetime import datetime` names the class, not the module",
            fix="`from datetime import timedelta`, then `timedelta(…)`",
            at=program.place(value),
        )
    elif written in ("timedelta", "datetime.timedelta") and not (
        root in program.imports or root in program.bound
    ):
        yield report(
            f"{root} is used for this timeout but never imported",
            reason="this raises NameError when the line is reached"
            if source.complete
            else "as it stands this raises NameError; the block has its own imports, without it",
            fix="`from datetime import timedelta`" if root == written else "`import datetime`",
            at=program.place(value),
        )


# --- a timeout parameter without effect -----------------------------------------------------------


@FAULT.lint_python
def timeout_parameter_is_never_used(program: Program, _: Source) -> Iterator[Finding]:
    talking = {program.function_of(one.call.node) for one in exchanges(program)}
    for function in program.functions:
        if function not in talking or _signature_is_given(program, function):
            continue
        for name, (parameter, _default) in durations.parameters(function).items():
            if LIMITED.fullmatch(name) and not _is_read(function, name):
                yield FAULT.warning(
                    f"the parameter {name} of {function.name} is never used: it has no effect",
                    reason="the calls in this function wait as long as their group's timeout "
                    "allows (10 minutes for NCCL, 30 for others, unless set in init_process_group)",
                    fix=f"use it, `work.wait(timedelta(seconds={name}))` after `async_op=True` or "
                    "isend and irecv; or remove it",
                    at=program.place(parameter),
                )


def _signature_is_given(program: Program, function: Function) -> bool:
    """A method of a derived class, or a decorated function, may need this parameter."""
    owner = program.parents.get(function)
    derived = isinstance(owner, ast.ClassDef) and bool(owner.bases)
    return derived or bool(function.decorator_list)


def _is_read(function: Function, name: str) -> bool:
    """Also `locals()`, which reads everything."""
    inside = (node for line in function.body for node in ast.walk(line))
    return any(isinstance(node, ast.Name) and node.id in (name, "locals") for node in inside)
