"""How a script joins its group: init_process_group, its backend, and where it meets the others."""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from holdfast.analysis.source.collectives.torch_calls import distributed
from holdfast.analysis.source.processes.children import processes
from holdfast.analysis.source.program import Call, Program, constant, once_per_program
from holdfast.analysis.source.python.flow import reached
from holdfast.analysis.source.python.name_values import names

POSITIONS = {"backend": 0, "init_method": 1, "world_size": 3, "rank": 4, "store": 5, "device_id": 8}
"""torch 2.13.0, distributed_c10d.py; the first three have been there since 1.0"""


class InitCall(NamedTuple):
    """One call of init_process_group."""

    call: Call
    known: bool
    """False: some of what it is given hides behind a star or `...`"""

    def given(self, name: str) -> ast.expr | None:
        found = self.call.argument(POSITIONS[name], name)
        return None if isinstance(found, ast.Constant) and found.value is None else found


@once_per_program
def init_calls_of(program: Program) -> list[InitCall]:
    found = [call for call in program.calls if distributed(program, call) == "init_process_group"]
    return [InitCall(call, not call.starred and not _elided(call)) for call in found]


def _elided(call: Call) -> bool:
    given = [*call.node.args, *(k.value for k in call.node.keywords)]
    return any(isinstance(one, ast.Constant) and one.value is ... for one in given)


def backend(program: Program, init: InitCall) -> str:
    """In small letters; '' when it is left to torch, 'unknown' when it is decided at run time."""
    said = init.given("backend")
    if said is None:
        return "" if init.known else "unknown"
    word = constant(names(program).follow(said))
    if isinstance(word, str):
        return word.lower()
    if isinstance(said, ast.Attribute) and program.name_of(said.value).endswith(".Backend"):
        return said.attr.lower()
    return "unknown"


def only_backend(program: Program) -> str:
    """The backend of a script whose every group has the same one; '' or 'unknown' else."""
    said = {backend(program, init) for init in init_calls_of(program)}
    makers = [c for c in program.calls if distributed(program, c).startswith("new_")]
    said |= {str(constant(given)).lower() for c in makers if (given := c.argument(2, "backend"))}
    return said.pop() if len(said) == 1 and init_calls_of(program) else "unknown"


def started_here(program: Program, init: InitCall) -> Call | None:
    """The call that starts the processes which join, where this script does that itself."""
    children = processes(program)
    function = program.function_of(init.call.node)
    if children is None or function is None:
        return None
    for start in children.starts:
        own = start.kind in ("mp.spawn", "Process", "subclass")
        if own and function in reached(program, start.function):
            return start.call
    return None


def runs(program: Program, init: InitCall) -> bool:
    """It belongs to a script that is run: at its top level, or in a function that a script with a
    main guard calls or starts processes with. Those of libraries and tests do not count."""
    function = program.function_of(init.call.node)
    if not program.main_guards:
        plain = not any(isinstance(a, ast.If | ast.Try) for a in program.above(init.call.node))
        return function is None and plain
    if function is None:
        return True
    owner = program.parents.get(function)
    in_class = isinstance(owner, ast.ClassDef)
    name = owner.name if isinstance(owner, ast.ClassDef) and function.name == "__init__" else ""
    name = name or function.name
    return any(
        (isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load))
        or (in_class and isinstance(node, ast.Attribute) and node.attr == name)
        for node in program.parents
    )


def mentions(program: Program, variable: str) -> bool:
    """Whether the code (not a comment) mentions an environment variable: as a string, or
    as a keyword of dict()."""
    if variable not in program.text:
        return False
    return any(
        (isinstance(node, ast.Constant) and node.value == variable)
        or (isinstance(node, ast.keyword) and node.arg == variable)
        or (isinstance(node, ast.Constant) and _written_into(node.value, variable))
        for node in program.parents
    )


def _written_into(value: object, variable: str) -> bool:
    """`{"MASTER_ADDR=" + host}`, a shell line, a dotenv text."""
    return isinstance(value, str) and bool(re.search(rf"\b{variable}=", value))
