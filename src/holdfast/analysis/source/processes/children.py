"""Which functions of a script run in child processes, what they are given, and how they start.

    Process(target=work, args=(t,))   class Worker(Process): def run(self)   mp.spawn(work)
    Pool().map(work, …)               ProcessPoolExecutor().submit(work, t)

How they start: start_method.py.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from holdfast.analysis.source.processes.start_method import (
    EXECUTORS,
    METHODS,
    MODULES,
    ContextObject,
    StartMethods,
    spawns,
)
from holdfast.analysis.source.program import (
    Call,
    Function,
    Program,
    constant,
    dotted,
    once_per_program,
)
from holdfast.analysis.source.python.flow import (
    in_loop,
    loop_variables,
    method_of,
    parameters,
    reached,
)

SPAWNERS = (
    "torch.multiprocessing.spawn",
    "torch.multiprocessing.spawn.spawn",
    "torch.multiprocessing.start_processes",
    "torch.multiprocessing.spawn.start_processes",
)
LOADERS = ("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader")
MAPPERS = ("map", "map_async", "imap", "imap_unordered", "starmap", "starmap_async")


class ProcessStart(NamedTuple):
    """One place that starts child processes."""

    call: Call
    kind: str
    """'Process', 'subclass', 'mp.spawn', 'initializer' (of a pool) or 'Pool' (its work)"""
    method: str
    function: Function
    """what the children run"""
    given: Mapping[str, ast.expr]
    """name in the child ('t', 'self.t') -> what the parent hands over"""
    own: frozenset[str]
    """names whose value differs from child to child: the index of the loop that starts them"""
    several: bool
    """more than one child runs it"""
    born: ast.AST
    """where the children come to be: a Pool's are there before it has work"""


def pickled(start: ProcessStart, python: str) -> bool:
    """What is handed over is pickled: to a fresh interpreter, and to a pool however it began."""
    return start.kind == "Pool" or spawns(start.method, python)


class Processes(StartMethods):
    """The child processes of one script."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.starts: list[ProcessStart] = list(self._find())
        self.bodies: set[Function] = {
            body for start in self.starts for body in reached(program, start.function)
        }
        """functions that run in a child, also those its function calls"""

    # --- what starts children -------------------------------------------------------------------

    def _find(self) -> Iterator[ProcessStart]:
        workers = self.worker_classes()
        pools = "Pool" in self.program.text
        for call in self.program.calls:
            if call.written in workers:
                yield from self._subclass(call, workers[call.written])
            elif call.name in SPAWNERS:
                yield from self._spawn(call)
            elif (made := self.made(call.node)) is not None:
                yield from self._maker(call, made)
            elif pools and method_of(call) in (*MAPPERS, "apply", "apply_async", "submit"):
                yield from self._pool_work(call)

    def worker_classes(self) -> dict[str, tuple[ast.ClassDef, str]]:
        """Subclasses of Process in this file, with their start method."""
        found: dict[str, tuple[ast.ClassDef, str]] = {}
        for one in self.program.classes:
            for base in one.bases:
                module, _, kind = self.program.name_of(base).rpartition(".")
                if kind == "Process" and module in MODULES:
                    found[one.name] = (one, self.method)
                elif isinstance(base, ast.Attribute) and base.attr == "Process":
                    method = self.context(base.value)
                    found.update({one.name: (one, method)} if method else {})
                elif dotted(base) in found:
                    found[one.name] = (one, found[dotted(base)][1])
        return found

    def _maker(self, call: Call, made: ContextObject) -> Iterator[ProcessStart]:
        if made.kind == "Process":
            target = call.argument(1, "target")
            args, kwargs = call.argument(3, "args"), call.argument(4, "kwargs")
            yield from self._start(call, "Process", made.method, target, args, kwargs)
        elif made.kind in ("Pool", "ProcessPoolExecutor"):
            place = 1 if made.kind == "Pool" else 2
            work, args = call.argument(place, "initializer"), call.argument(place + 1, "initargs")
            yield from self._start(call, "initializer", made.method, work, args, None)

    def _spawn(self, call: Call) -> Iterator[ProcessStart]:
        said = call.keyword("start_method")
        word = "spawn" if said is None else constant(said)
        method = word if isinstance(word, str) and word in METHODS else "unknown"
        target, args = call.argument(0, "fn"), call.argument(1, "args")
        for start in self._start(call, "mp.spawn", method, target, args, None, skip=1):
            count = constant(call.argument(2, "nprocs"))
            index = parameters(start.function)[:1]
            yield start._replace(several=count != 1, own=start.own | frozenset(index))

    def _pool_work(self, call: Call) -> Iterator[ProcessStart]:
        if not isinstance(call.node.func, ast.Attribute):
            return
        maker = self.names.follow(call.node.func.value)
        made = self.made(maker)
        if made is None or made.kind not in ("Pool", "ProcessPoolExecutor"):
            return
        target, args = call.argument(0, "func"), None
        if method_of(call) in ("apply", "apply_async"):
            args = call.argument(1, "args")
        elif method_of(call) == "submit":
            args = ast.Tuple(elts=call.node.args[1:], ctx=ast.Load())
        for start in self._start(call, "Pool", made.method, target, args, None):
            many = method_of(call) in MAPPERS
            own = frozenset(parameters(start.function)) if many else start.own
            born = maker if made.kind == "Pool" else call.node
            yield start._replace(several=start.several or many, own=own, born=born)

    def _start(
        self,
        call: Call,
        kind: str,
        method: str,
        target: ast.expr | None,
        args: ast.expr | None,
        kwargs: ast.expr | None,
        skip: int = 0,
    ) -> Iterator[ProcessStart]:
        function, first = self._function(target)
        if function is None:
            return
        names_in_child = parameters(function)[skip:]
        handed = first + (_items(self.names.follow(args)) if args is not None else [])
        given = dict(zip(names_in_child, handed, strict=False))
        if isinstance(kwargs, ast.Dict):
            pairs = zip(kwargs.keys, kwargs.values, strict=True)
            given.update({word: v for k, v in pairs if isinstance(word := constant(k), str)})
        yield self._made_start(call, kind, method, function, given)

    def _subclass(self, call: Call, worker: tuple[ast.ClassDef, str]) -> Iterator[ProcessStart]:
        run, made = (_method(worker[0], name) for name in ("run", "__init__"))
        if run is None:
            return
        handed: dict[str, ast.expr] = {}
        if made is not None:
            handed = dict(zip(parameters(made), call.node.args, strict=False))
            handed.update({k.arg: k.value for k in call.node.keywords if k.arg})
        given = {
            dotted(target): handed[value.id]
            for assign in self.program.assigns
            if isinstance(assign, ast.Assign) and self.program.function_of(assign) is made
            for target, value in _assigned(assign.targets[0], assign.value)
            if isinstance(value, ast.Name) and value.id in handed
        }
        yield self._made_start(call, "subclass", worker[1], run, given)

    def _made_start(
        self, call: Call, kind: str, method: str, function: Function, given: dict[str, ast.expr]
    ) -> ProcessStart:
        counters = set(loop_variables(self.program, call.node))
        own = {
            name
            for name, value in given.items()
            if any(isinstance(n, ast.Name) and n.id in counters for n in ast.walk(value))
        }
        several = bool(counters) or in_loop(self.program, call.node)
        return ProcessStart(call, kind, method, function, given, frozenset(own), several, call.node)

    def _function(self, target: ast.expr | None) -> tuple[Function | None, list[ast.expr]]:
        """The function a target names, and what functools.partial hands over first."""
        if target is None:
            return None, []
        if isinstance(target, ast.Call) and self.program.name_of(target.func) in (
            "functools.partial",
        ):
            function, first = self._function(target.args[0] if target.args else None)
            return function, first + target.args[1:]
        name = dotted(target)
        if name.startswith("self.") and name.count(".") == 1:
            owner = next(
                (a for a in self.program.above(target) if isinstance(a, ast.ClassDef)), None
            )
            return (_method(owner, name[5:]) if owner else None), []
        owned, _, method = name.rpartition(".")
        if owner := next((one for one in self.program.classes if one.name == owned), None):
            return _method(owner, method), []
        return (self.program.function(name) if name else None), []


def _method(owner: ast.ClassDef, name: str) -> Function | None:
    return next((n for n in owner.body if isinstance(n, Function) and n.name == name), None)


def _assigned(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """`self.a, self.b = a, b` by pairs."""
    pairs = zip(_items(target), _items(value), strict=False)
    return list(pairs) if _items(target) and _items(value) else [(target, value)]


def _items(node: ast.expr) -> list[ast.expr]:
    return list(node.elts) if isinstance(node, ast.Tuple | ast.List) else []


@once_per_program
def processes(program: Program) -> Processes | None:
    """None for a script that has nothing to do with child processes: most of them."""
    if any(_concerns(call.name) for call in program.calls):
        return Processes(program)
    bases = (program.name_of(base) for one in program.classes for base in one.bases)
    return Processes(program) if any(_concerns(name) for name in bases) else None


def _concerns(name: str) -> bool:
    return "multiprocessing." in name or name in EXECUTORS or name in LOADERS
