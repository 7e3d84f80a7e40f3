"""What may or may not happen, or happens apart: branches, loops, functions, subshells."""

from __future__ import annotations

import abc
import bisect
import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from holdfast.analysis.source.source import ShellLoop
from holdfast.lint.readers.shell import grammar
from holdfast.lint.readers.shell.assignments import AssignmentReader, assigned_names
from holdfast.lint.readers.shell.nested_text import NestedText
from holdfast.lint.readers.shell.scope import ShellScope, ShellVariable
from holdfast.lint.readers.shell.shell_reading import ShellReading
from holdfast.lint.readers.shell.word_expansion import WordExpander

if TYPE_CHECKING:
    from tree_sitter import Node

DEEPEST = 80
"""of statements inside statements"""


class BranchWalker(abc.ABC):
    """Each works on a layer of the variables; statements.py says what a statement is."""

    def __init__(
        self,
        passage: NestedText,
        reading: ShellReading,
        scope: ShellScope,
        *,
        loops: tuple[int, ...] = (),
        depth: int = 0,
    ) -> None:
        self.passage = passage
        self.reading = reading
        self.loops = loops
        self.depth = depth
        self.background = False
        self.functions: dict[str, dict[str, ShellVariable | None]] = {}
        """what calling them changes"""
        self.expander = WordExpander(passage, self.substitution)
        self.expander.scope = scope
        self.assigner = AssignmentReader(self.expander, reading)
        self.assigned = assigned_names(self.expander.data)

    @property
    def scope(self) -> ShellScope:
        return self.expander.scope

    @abc.abstractmethod
    def statement(self, node: Node) -> int | None:
        """The index of the command it is, where it is a simple one."""

    @abc.abstractmethod
    def statements(self, node: Node) -> None: ...

    # --- layers of variables ------------------------------------------------------------------

    def apart(self, act: Callable[[], int | None]) -> int | None:
        """In a subshell: nothing it sets is seen outside."""
        outer = self.scope
        self.expander.scope = outer.layer()
        try:
            return act()
        finally:
            self.expander.scope = outer

    def join(
        self,
        branches: Sequence[Callable[[], object]],
        *,
        one_is_taken: bool,
        doubting: Collection[str] = frozenset(),
    ) -> None:
        outer, arms = self.scope, self.reading.arms
        fork = self.reading.fork()
        ends: list[ShellScope] = []
        for number, branch in enumerate(branches):
            self.reading.arms = (*arms, (fork, number))
            self.expander.scope = outer.layer(doubting)
            branch()
            ends.append(self.expander.scope)
        self.expander.scope, self.reading.arms = outer, arms
        outer.join(ends, one_is_taken=one_is_taken)

    def substitution(self, node: Node, scope: ShellScope, depth: int) -> None:
        """`$(…)`, wherever it is."""
        if depth + self.depth > DEEPEST:
            self.reading.cut = True
            return
        kept, self.depth = self.depth, self.depth + depth + 1
        outer, self.expander.scope = self.expander.scope, scope.layer()
        was, self.background = self.background, False
        self.statements(node)
        self.background = was
        self.expander.scope, self.depth = outer, kept

    def subshell(self, node: Node) -> None:
        def inside() -> None:
            self.statements(node)

        self.apart(inside)

    # --- branches -----------------------------------------------------------------------------

    def fork(self, node: Node) -> None:
        """The first condition always runs; everything else may."""
        branches: list[list[Node]] = [[]]
        one_is_taken = False
        condition_over = False
        for child in node.children:
            if child.type == "then" and not condition_over:
                condition_over = True
            elif not condition_over:
                if child.is_named:
                    self.statement(child)
            elif child.type in ("elif_clause", "else_clause"):
                branches.append([child])
                one_is_taken = one_is_taken or child.type == "else_clause"
            elif child.is_named:
                branches[0].append(child)
        self.join(
            [functools.partial(self._all, branch) for branch in branches],
            one_is_taken=one_is_taken,
        )

    def _all(self, nodes: list[Node]) -> None:
        for node in nodes:
            self.statement(node)

    def cases(self, node: Node) -> None:
        items = [child for child in node.children if child.type == "case_item"]
        branches = [functools.partial(self._case_item, item) for item in items]
        taken = any(self.expander.raw(item).lstrip().startswith("*)") for item in items)
        self.join(list(branches), one_is_taken=taken)

    def _case_item(self, node: Node) -> None:
        over = False
        for child in node.children:
            if child.type == ")":
                over = True
            elif over and child.is_named:
                self.statement(child)

    # --- loops and functions ------------------------------------------------------------------

    def loop(self, node: Node) -> None:
        body = next(
            (c for c in node.children if c.type in ("do_group", "compound_statement")), None
        )
        index = len(self.reading.loops)
        self.reading.loops.append(self._loop_noun(node, body))
        outer, self.loops = self.loops, (*self.loops, index)

        def one_round() -> None:
            self._loop_condition(node, body)
            if body is not None:
                self.statements(body)

        names = frozenset(self._assigned_in(node))
        self.join([one_round], one_is_taken=False, doubting=names)
        self.loops = outer

    def _loop_noun(self, node: Node, body: Node | None) -> ShellLoop:
        keyword = node.children[0]
        kind = keyword.type if keyword.type in ("while", "until") else "for"
        end = body.start_byte if body is not None else node.end_byte
        text = self.expander.data[keyword.end_byte : end].decode("utf-8", "replace")
        return ShellLoop(
            kind=kind,
            place=self.passage.place(node.start_byte),
            last_line=self.passage.place(max(node.end_byte - 1, node.start_byte)).line,
            condition=grammar.unmasked(text).strip().rstrip(";").strip(),
        )

    def _loop_condition(self, node: Node, body: Node | None) -> None:
        for child in node.children:
            if body is not None and child.start_byte >= body.start_byte:
                break
            if child.type == "variable_name":
                self.assigner.unknown(child)
            elif node.type == "while_statement" and child.is_named:
                self.statement(child)
            elif child.is_named:
                self.expander.words(child)

    def _assigned_in(self, node: Node) -> Iterator[str]:
        first = bisect.bisect_left(self.assigned, (node.start_byte, ""))
        last = bisect.bisect_left(self.assigned, (node.end_byte, ""))
        return (self.assigned[number][1] for number in range(first, last))

    def function(self, node: Node) -> None:
        """Its text is read where it is called, with the variables as they are there."""
        body = node.child_by_field_name("body")
        name = node.child_by_field_name("name")
        if body is None or name is None:
            return
        outer, arms = self.scope, self.reading.arms
        self.expander.scope = outer.layer(self._assigned_twice)
        self.reading.arms = (*arms, (self.reading.fork(), 0))
        self.statement(body)
        self.functions[self.expander.raw(name)] = self.scope.changes()
        self.expander.scope, self.reading.arms = outer, arms

    @functools.cached_property
    def _assigned_twice(self) -> set[str]:
        seen: set[str] = set()
        twice: set[str] = set()
        for _, name in self.assigned:
            (twice if name in seen else seen).add(name)
        return twice
