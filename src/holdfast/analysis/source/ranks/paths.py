"""Which collectives are on a path through a script, and where a path ends.

Functions of the same file are followed a few calls deep. What they do under a condition of their
own is either unsure or, where their ranks part or their caller decides by an argument, left out.
"""

from __future__ import annotations

import ast
import bisect
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from holdfast.analysis.source.collectives.collective_calls import CollectiveCall, collective_calls
from holdfast.analysis.source.program import Call, Function, Program, once_per_program
from holdfast.analysis.source.ranks.guards import rank_guards
from holdfast.analysis.source.ranks.rank_names import asks_if_distributed

DEEP = 3
EXITS = ("sys.exit", "os._exit", "builtins.exit", "builtins.quit")
MAY_BE_COLLECTIVE = re.compile(
    r"\w*(recv|receive|broadcast|bcast|gather|reduce|barrier|sync|scatter|wait_for|worker|serve"
    r"|follow|listen|rendezvous|collective|communicat|all_to_all)\w*",
    re.IGNORECASE,
)
"""names of unknown functions that may hold the collective that seems to be missing"""
LEAVING = (ast.Return, ast.Continue, ast.Break, ast.Raise)
IN_LOOP = (ast.Continue, ast.Break)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
Block = Sequence[ast.AST]


class CollectiveOnPath(NamedTuple):
    """A collective on a path, and the call of this path that leads to it."""

    collective: CollectiveCall
    at: Call
    sure: bool = True
    """False: an `if` of a function on the path decides"""

    @property
    def deep(self) -> bool:
        return self.at is not self.collective.call

    @property
    def title(self) -> str:
        through = f", which calls {self.collective.call.written}" if self.deep else ""
        return f"{self.at.written} (line {self.at.node.lineno}){through}"


class Paths:
    """The collectives of one program, by the code that leads to them."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.collectives = {m.call.node: m for m in collective_calls(program)}
        self._starts = [_start(call.node) for call in program.calls] if self.collectives else []
        self._known: dict[Function, list[CollectiveOnPath]] = {}

    def through(self, call: Call) -> list[CollectiveOnPath]:
        """The collective that a call is, or those that it leads to."""
        here = self.collectives.get(call.node)
        if here is not None:
            return [CollectiveOnPath(here, call)]
        function = self.target(call)
        inner = self._inside(function, DEEP) if function is not None else []
        return [CollectiveOnPath(stop.collective, call, stop.sure) for stop in inner]

    def on_path(self, *nodes: ast.AST, nested: bool = False) -> list[CollectiveOnPath]:
        """All stops below these nodes; with `nested` also in functions defined there."""
        found: list[CollectiveOnPath] = []
        for call in self._calls(nodes, nested=nested):
            found += self.through(call)
        return found

    def may_hold_collective(self, *nodes: ast.AST) -> bool:
        """An unknown call there has a name that sounds like a collective."""
        return any(
            not call.name.startswith(("torch.", "builtins."))
            and MAY_BE_COLLECTIVE.fullmatch(call.method)
            and call.node not in self.collectives
            and self.target(call) is None
            for call in self._calls(nodes)
        )

    def _calls(self, nodes: Block, *, nested: bool = False) -> Iterator[Call]:
        """The calls below, found by position: what is between a node's first and last
        character belongs to it."""
        for node in nodes:
            first = bisect.bisect_left(self._starts, _start(node))
            last = bisect.bisect_left(self._starts, _end(node))
            home = None if nested else self._home(node)
            for call in self.program.calls[first:last]:
                if nested or self.program.function_of(call.node) is home:
                    yield call

    def _home(self, node: ast.AST) -> Function | None:
        return node if isinstance(node, Function) else self.program.function_of(node)

    # --- functions of the file ------------------------------------------------------------------

    def target(self, call: Call) -> Function | None:
        """The function of this file that a call surely runs."""
        function = self.program.target(call)
        if function is None or isinstance(function, ast.AsyncFunctionDef):
            return None
        owner = self.program.parents.get(function)
        if call.written.startswith(("self.", "cls.")):
            classes = (a for a in self.program.above(call.node) if isinstance(a, ast.ClassDef))
            return function if next(classes, None) is owner else None
        return None if isinstance(owner, ast.ClassDef) else function

    def _inside(self, function: Function, deep: int) -> list[CollectiveOnPath]:
        if function in self._known:
            return self._known[function]
        self._known[function] = []  # of one that calls itself
        found: list[CollectiveOnPath] = []
        for call in self._calls(function.body):
            found += self._within(function, call, deep)
        if found and any(isinstance(n, ast.Yield | ast.YieldFrom) for n in ast.walk(function)):
            found = []  # a call of a generator runs nothing yet
        self._known[function] = found
        return found

    def _within(self, function: Function, call: Call, deep: int) -> Iterator[CollectiveOnPath]:
        here = self.collectives.get(call.node)
        inner: list[CollectiveOnPath] = []
        if here is not None:
            inner = [CollectiveOnPath(here, call)]
        elif deep > 1 and (below := self.target(call)) is not None:
            inner = self._inside(below, deep - 1)
        if not inner or next(rank_guards(self.program, call.node), None) is not None:
            return
        tests = [
            above.test
            for above in self.program.above(call.node)
            if isinstance(above, ast.If | ast.IfExp) and not asks_if_distributed(above.test)
        ]
        given = {one.arg for one in [*function.args.args, *function.args.kwonlyargs]} - {"self"}
        if any(_names(test) & given for test in tests):
            return  # its caller decides
        for stop in inner:
            yield CollectiveOnPath(stop.collective, call, stop.sure and not tests)

    # --- ends -------------------------------------------------------------------------------------

    def leaves(self, block: Block) -> ast.stmt | None:
        """The statement with which a block always ends its function, loop or process."""
        return next((one for one, always in self.exits(block) if always), None)

    def exits(self, block: Block, *, always: bool = True) -> Iterator[tuple[ast.stmt, bool]]:
        """Every way out of a block, and whether it is taken always."""
        for statement in block:
            if isinstance(statement, LEAVING) or self._ends_process(statement):
                yield statement, always  # type: ignore[misc]
                return
            for inner, sure in _inner_blocks(statement):
                for one, taken in self.exits(inner, always=always and sure):
                    if not (isinstance(statement, LOOPS) and isinstance(one, IN_LOOP)):
                        yield one, taken

    def _ends_process(self, statement: ast.AST) -> bool:
        value = statement.value if isinstance(statement, ast.Expr) else None
        return isinstance(value, ast.Call) and self.program.name_of(value.func) in EXITS

    def after(self, node: ast.AST, leave: ast.stmt | None = None) -> list[CollectiveOnPath]:
        """The stops that follow a statement in its function; with `leave`, those that are then
        not reached any more."""
        found: list[CollectiveOnPath] = []
        below = node
        for above in self.program.above(node):
            found += self.on_path(*_following(above, below, finally_too=leave is None))
            if isinstance(above, LOOPS) and leave is not None:
                if isinstance(leave, ast.Continue):
                    return found
                found += [
                    s for s in self.on_path(*above.body) if node not in self._chain(s.at.node)
                ]
                if isinstance(leave, ast.Break):
                    return found
            if isinstance(above, Function | ast.Lambda | ast.ClassDef):
                return found
            below = above
        return found

    def _chain(self, node: ast.AST) -> set[ast.AST]:
        return {node, *self.program.above(node)}


def _inner_blocks(statement: ast.AST) -> Iterator[tuple[Block, bool]]:
    """The blocks inside a statement, and whether they run whenever it does."""
    if isinstance(statement, ast.With | ast.AsyncWith):
        yield statement.body, True
    elif isinstance(statement, ast.Try):
        yield statement.body, not statement.handlers
        yield from ((handler.body, False) for handler in statement.handlers)
        yield statement.orelse, False
        yield statement.finalbody, True
    elif isinstance(statement, ast.If | ast.For | ast.AsyncFor | ast.While):
        yield statement.body, False
        yield statement.orelse, False


def _following(above: ast.AST, below: ast.AST, *, finally_too: bool) -> Block:
    """The statements after one, in the block that holds it; who leaves still runs `finally:`."""
    for field in ("body", "orelse", "finalbody", "handlers"):
        block = getattr(above, field, None)
        if isinstance(block, list) and below in block:
            rest = block[block.index(below) + 1 :]
            if isinstance(above, ast.Try) and field == "body":
                rest = [*rest, *above.orelse, *(above.finalbody if finally_too else [])]
            return rest
    return []


def _start(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def _end(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "end_lineno", 0) or 0, getattr(node, "end_col_offset", 0) or 0


def _names(node: ast.expr) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


@once_per_program
def paths_of(program: Program) -> Paths:
    return Paths(program)
