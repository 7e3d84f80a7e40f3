"""Every place of a script that talks to other ranks, also one call deep, and over which backend."""

from __future__ import annotations

import ast
from typing import NamedTuple

from holdfast.analysis.source.collectives.torch_calls import exchange, torch_ops
from holdfast.analysis.source.program import Call, Function, Program, constant, once_per_program
from holdfast.analysis.source.python.name_values import names

INITS = frozenset(
    [
        "deepspeed.init_distributed",
        "deepspeed.comm.init_distributed",
        "deepspeed.comm.comm.init_distributed",
    ]
)


class Exchange(NamedTuple):
    """A call that waits for other ranks."""

    call: Call
    op: str
    via: Call | None = None
    """the call inside the function of this file that `call` runs, where it is one deep"""

    @property
    def said(self) -> str:
        """How a sentence names it: 'dist.all_reduce', 'dist.all_reduce (in sync)'."""
        if self.via is None:
            return self.call.written
        return f"{self.via.written} (in {self.call.method})"

    @property
    def inner(self) -> Call:
        return self.via or self.call


@once_per_program
def exchanges(program: Program) -> tuple[Exchange, ...]:
    """Collectives and point-to-point calls, in order of the text."""
    found = ((call, exchange(program, call)) for call in program.calls)
    return tuple(Exchange(call, op) for call, op in found if op)


@once_per_program
def reached(program: Program) -> tuple[Exchange, ...]:
    """The same, and calls of functions of this file that make one themselves."""
    direct = exchanges(program)
    if not direct:
        return ()
    first: dict[Function, Exchange] = {}
    for one in direct:
        function = program.function_of(one.call.node)
        if function is not None:
            first.setdefault(function, one)
    found = {one.call: one for one in direct}
    for call in program.calls:
        target = program.target(call) if call not in found else None
        if target in first:
            found[call] = Exchange(call, first[target].op, first[target].call)
    return tuple(sorted(found.values(), key=lambda one: _position(one.call)))


def _position(call: Call) -> tuple[int, int]:
    return call.node.lineno, call.node.col_offset


def starts(program: Program) -> list[Call]:
    """Calls that form the default group."""
    plain = [call for call, op in torch_ops(program) if op == "init_process_group"]
    return plain + program.called(*INITS) if "deepspeed" in program.text else plain


def backends(program: Program) -> frozenset[str]:
    """Of the default group: {'nccl'}, {'nccl', 'gloo'}; empty where the text does not tell."""
    found: set[str] = set()
    for call in starts(program):
        given = call.argument(0, "dist_backend" if call.name in INITS else "backend")
        value = constant(names(program).follow(given)) if given is not None else None
        if not isinstance(value, str):
            return frozenset()
        found |= {part.rpartition(":")[2].strip().lower() for part in value.split(",")}
    return frozenset(found)


def own_group(call: Call) -> bool:
    """Whether it names another group than the default one, or may do so."""
    group = call.keyword("group") or call.keyword("process_group") or call.keyword("process_set")
    if group is None:
        return call.starred
    return not (isinstance(group, ast.Constant) or ast.unparse(group).endswith("WORLD"))
