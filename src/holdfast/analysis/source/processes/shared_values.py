"""What a value is, as far as child processes care: a tensor, a module, a list, a lock, a queue."""

from __future__ import annotations

import ast
import enum
import re
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.analysis.source.processes.children import Processes, ProcessStart
from holdfast.analysis.source.processes.writes import Write, writes
from holdfast.analysis.source.program import Program, dotted
from holdfast.analysis.source.python.flow import reached

TENSORS = re.compile(
    r"torch\.(?:(?:zeros|ones|empty|full|rand|randn)(?:_like)?|randint|arange|linspace|eye|tensor"
    r"|as_tensor|from_numpy|[A-Z]?[a-z]*Tensor)"
)
ARRAYS = ("zeros", "ones", "empty", "full", "array", "arange", "zeros_like", "ones_like", "asarray")
PLAIN = frozenset(
    ["builtins.list", "builtins.dict", "builtins.set"]
    + [f"collections.{name}" for name in ("defaultdict", "Counter", "OrderedDict", "deque")]
)
SYNCHRONISERS = frozenset(
    ["Lock", "RLock", "Semaphore", "BoundedSemaphore", "Condition", "Event", "Barrier"]
)
SHARED = SYNCHRONISERS | {
    "Queue",
    "SimpleQueue",
    "JoinableQueue",
    "Value",
    "Array",
    "RawValue",
    "RawArray",
}
"""what multiprocessing makes so that processes can share it"""

KEEPS_MEMORY = ("share_memory_", "requires_grad_", "view", "reshape", "float", "double", "long")


class ValueKind(enum.Enum):
    TENSOR = "tensor"
    MODULE = "module"
    PLAIN = "list or dict"
    ARRAY = "NumPy array"
    THREADS = "of threading"
    PROCESSES = "of multiprocessing"


class ProcessValue(NamedTuple):
    what: ValueKind
    shared: bool
    """its memory is the same in all processes that hold it"""
    node: ast.expr
    kind: str = ""
    """'Lock', 'torch.zeros', 'list'"""


class InheritedValue(NamedTuple):
    """An object of the parent that a child's function uses."""

    name: str
    """in the child"""
    parent: str
    """in the parent"""
    passed: bool
    """handed over at the start; False: the child reaches it as a global or by closure"""
    values: tuple[ProcessValue, ...]
    start: ProcessStart


def value(children: Processes, node: ast.expr) -> ProcessValue | None:
    """What an expression makes; None when it is nothing we know."""
    if isinstance(node, ast.List | ast.Dict | ast.Set):
        return ProcessValue(ValueKind.PLAIN, False, node, type(node).__name__.lower())
    if isinstance(node, ast.BinOp) and isinstance(node.left, ast.List):
        return ProcessValue(ValueKind.PLAIN, False, node, "list")
    if not isinstance(node, ast.Call):
        return None
    return (
        _of_torch(children.program, node) or _of_python(children, node) or _chained(children, node)
    )


def _of_torch(program: Program, node: ast.Call) -> ProcessValue | None:
    name = program.name_of(node.func)
    module, _, last = name.rpartition(".")
    if TENSORS.fullmatch(name):
        return None if _elsewhere(node) else ProcessValue(ValueKind.TENSOR, False, node, name)
    if module in ("torch.nn", "torch.nn.modules") and last[:1].isupper():
        return ProcessValue(ValueKind.MODULE, False, node, name)
    if dotted(node.func) in modules(program):
        return ProcessValue(ValueKind.MODULE, False, node, dotted(node.func))
    return None


def _of_python(children: Processes, node: ast.Call) -> ProcessValue | None:
    name = children.program.name_of(node.func)
    module, _, last = name.rpartition(".")
    if name in PLAIN:
        return ProcessValue(ValueKind.PLAIN, False, node, last)
    if module == "numpy" and last in ARRAYS:
        return ProcessValue(ValueKind.ARRAY, False, node, name)
    if module == "threading" and last in SYNCHRONISERS:
        return ProcessValue(ValueKind.THREADS, False, node, last)
    made = children.made(node)
    if made is not None and made.kind in SHARED:
        return ProcessValue(ValueKind.PROCESSES, True, node, made.kind)
    return None


def _chained(children: Processes, node: ast.Call) -> ProcessValue | None:
    """`torch.zeros(1).share_memory_()`; moving to a device or copying makes something unknown."""
    if not isinstance(node.func, ast.Attribute):
        return None
    method = node.func.attr
    inner = value(children, node.func.value) if method in (*KEEPS_MEMORY, "share_memory") else None
    if inner is None or inner.what not in (ValueKind.TENSOR, ValueKind.MODULE):
        return None
    return inner._replace(shared=inner.shared or method.startswith("share_memory"), node=node)


def _elsewhere(node: ast.Call) -> bool:
    """On a device that is not the CPU, or may be another."""
    said = next((k.value for k in node.keywords if k.arg == "device"), None)
    return said is not None and not (isinstance(said, ast.Constant) and said.value == "cpu")


def modules(program: Program) -> set[str]:
    """Classes of this file that are torch modules."""
    found: set[str] = set()
    for one in program.classes:
        bases = {program.name_of(base) or dotted(base) for base in one.bases}
        if any(base in found or base.startswith("torch.nn.") for base in bases):
            found.add(one.name)
    return found


def inherited_value(children: Processes, start: ProcessStart, name: str) -> InheritedValue | None:
    """What a name of the child's function is in the parent; None when it is the child's own."""
    if name in start.given:
        handed = start.given[name]
        parent = dotted(handed)
        found = children.names.values(parent, start.call.node) if parent else [handed]
        return _inherited_value(children, start, name, parent, found, passed=True)
    home = children.names.home(name, start.function)
    if home is False or home is start.function:
        return None
    found = children.names.values(name, start.function)
    passed = name.startswith("self.")  # a bound method takes its object along
    return _inherited_value(children, start, name, name, found, passed=passed)


def _inherited_value(
    children: Processes,
    start: ProcessStart,
    name: str,
    parent: str,
    found: list[ast.expr],
    *,
    passed: bool,
) -> InheritedValue | None:
    if any(children.program.function_of(node) in children.bodies for node in found):
        return None  # the child makes its own
    values = [value(children, node) for node in found]
    known = tuple(one for one in values if one is not None)
    if not known or len(known) < len(values):
        return None
    if any(one.what in (ValueKind.TENSOR, ValueKind.MODULE) for one in known):
        later = shared_later(children, parent, start)
        if later is None:
            return None
        known = tuple(one._replace(shared=one.shared or later) for one in known)
    return InheritedValue(name, parent, passed, known, start)


def shared_later(children: Processes, parent: str, start: ProcessStart) -> bool | None:
    """Whether `x.share_memory_()` is called somewhere; None when something unnamed is shared."""
    names = children.names
    receivers = {
        call.written.rpartition(".")[0]
        for call in children.program.calls
        if call.method in ("share_memory_", "share_memory", "move_to_shared_memory")
    }
    if parent in receivers or start.given.keys() & receivers:
        return True
    unknown = any(not names.values(one, start.call.node) for one in receivers if one)
    return None if unknown else False


def written(children: Processes, start: ProcessStart) -> Iterator[tuple[Write, InheritedValue]]:
    """What the children of one start change, of what their parent made."""
    for one in writes(children.program, start.function):
        found = inherited_value(children, start, one.name)
        if found is not None:
            yield one, found


def read_elsewhere(children: Processes, found: InheritedValue) -> ast.AST | None:
    """The first place outside the children that reads it after they were started."""
    program, start = children.program, found.start.call.node
    scope = children.names.home(found.parent, start)
    for node in program.parents:
        if not isinstance(node, ast.Name | ast.Attribute) or dotted(node) != found.parent:
            continue
        if not isinstance(node.ctx, ast.Load) or children.names.home(found.parent, node) != scope:
            continue
        function = program.function_of(node)
        if function in children.bodies:
            continue
        same = function is program.function_of(start)
        if same and node.lineno <= (start.end_lineno or start.lineno):
            continue
        if not _handed_over(program, node, found.start):
            return node
    return None


def comes_back(children: Processes, found: InheritedValue) -> bool:
    """The child sends it (`queue.put(model.state_dict())`), or the parent fills its own: the two
    were never meant to be one."""
    program, start = children.program, found.start
    for call in program.calls_in(*reached(program, start.function)):
        if call.method in ("put", "put_nowait", "send"):
            sent = {
                dotted(n) for n in ast.walk(call.node) if isinstance(n, ast.Name | ast.Attribute)
            }
            if found.name in sent:
                return True
    bodies = [one for one in program.functions if one not in children.bodies]
    own = [one for body in bodies for one in writes(program, body, 0)]
    own += [one for one in writes(program, program.tree, 0) if not program.function_of(one.node)]
    after = start.call.node.end_lineno or start.call.node.lineno
    return any(
        one.name == found.parent
        and one.how != "training"
        and getattr(one.node, "lineno", 0) > after
        and program.function_of(one.node) is program.function_of(start.call.node)
        for one in own
    )


def _handed_over(program: Program, node: ast.AST, start: ProcessStart) -> bool:
    """It is an argument to a start of children (this or another), which does not read it."""
    return any(above is start.call.node for above in program.above(node)) or any(
        isinstance(above, ast.keyword) and above.arg in ("args", "kwargs", "initargs")
        for above in program.above(node)
    )


def uses(program: Program, start: ProcessStart, name: str) -> list[ast.AST]:
    """Where the child's function and those it calls read a name of the parent."""
    return [
        node
        for body in reached(program, start.function)
        for node in ast.walk(body)
        if isinstance(node, ast.Name | ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and dotted(node) == name
    ]
