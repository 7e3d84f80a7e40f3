"""Groups of one script beside its default group: which timeout each will have.

new_group, split_group and meshes do not take the default group's timeout over: without one of
their own they have that of their backend (torch/distributed/distributed_c10d.py,
_get_default_timeout; device_mesh.py).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.analysis.source.collectives.communication import backends, starts
from holdfast.analysis.source.collectives.torch_calls import NEW_GROUPS, torch_ops
from holdfast.analysis.source.program import Call, Program, constant
from holdfast.analysis.source.python import durations
from holdfast.analysis.source.python.name_values import names

DEFAULTS = {"nccl": 600, "gloo": 1800, "mpi": 1800, "ucc": 1800}
"""seconds, since torch 2.2"""
MESHES = frozenset(
    ["torch.distributed.init_device_mesh", "torch.distributed.device_mesh.init_device_mesh"]
)
SLURM = re.compile(r"(?:(?P<days>\d+)-)?(?P<rest>\d+(?::\d+){0,2})")


class CustomTimeout(NamedTuple):
    """The default group gets its own timeout."""

    call: Call
    value: ast.expr
    seconds: float | None


class GroupWithoutTimeout(NamedTuple):
    """A group that does not get it."""

    call: Call
    default: int | None
    """seconds; None where its backend is not written"""


def custom_timeout(program: Program) -> CustomTimeout | None:
    """The only one; None where there is none, or several."""
    found = [
        CustomTimeout(call, value, durations.seconds(program, value))
        for call in starts(program)
        if (value := call.argument(2 if "init_process" in call.name else 4, "timeout")) is not None
        and not (isinstance(value, ast.Constant) and value.value is None)
    ]
    return found[0] if len(found) == 1 else None


def groups_without_timeout(program: Program) -> Iterator[GroupWithoutTimeout]:
    """Groups made without a timeout; nothing where the script sets it on all of them later."""
    ops = torch_ops(program)
    if any(op == "_set_pg_timeout" for _, op in ops):
        return
    plain = [call for call, op in ops if op in NEW_GROUPS and not _has_own(op, call)]
    meshes = [call for call in program.called(*MESHES) if _makes_several(program, call)]
    for call in (*plain, *meshes):
        if not call.starred:
            yield GroupWithoutTimeout(call, _default(program, call))


def _has_own(op: str, call: Call) -> bool:
    position = 1 if op in ("new_group", "new_subgroups_by_enumeration") else 2
    given = call.argument(position, "timeout")
    return given is not None or call.keyword("pg_options") is not None


def _makes_several(program: Program, call: Call) -> bool:
    """A mesh of one dimension is the default group itself."""
    shape = call.argument(1, "mesh_shape")
    shape = names(program).follow(shape) if shape is not None else None
    if call.keyword("backend_override") is not None or not isinstance(shape, ast.Tuple | ast.List):
        return False
    return len([part for part in shape.elts if constant(part) != 1]) > 1


def _default(program: Program, call: Call) -> int | None:
    own = call.keyword("backend")
    value = constant(names(program).follow(own)) if own is not None else None
    kinds = {value} if own is not None else backends(program)
    limits = {DEFAULTS.get(str(kind).lower()) for kind in kinds}
    return limits.pop() if len(limits) == 1 else None


def slurm_seconds(text: str) -> int | None:
    """Of --time: 'minutes', 'minutes:seconds', 'hours:minutes:seconds', 'days-hours[:…]'."""
    match = SLURM.fullmatch(text.strip())
    if match is None:
        return None
    parts = [int(part) for part in match["rest"].split(":")]
    if match["days"] is not None:
        hours, minutes, seconds = (*parts, 0, 0)[:3]
        return ((int(match["days"]) * 24 + hours) * 60 + minutes) * 60 + seconds
    if len(parts) == 1:
        return parts[0] * 60
    hours, minutes, seconds = (0, *parts)[-3:]
    return (hours * 60 + minutes) * 60 + seconds
