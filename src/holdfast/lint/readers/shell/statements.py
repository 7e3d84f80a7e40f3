"""Statements of the grammar -> commands, settings and loops, in the order in which they run."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.lint.readers.shell import grammar, sbatch
from holdfast.lint.readers.shell.branch_walker import DEEPEST, BranchWalker
from holdfast.lint.readers.shell.nested_text import NestedText
from holdfast.lint.readers.shell.scope import ShellScope
from holdfast.lint.readers.shell.shell_reading import MOST_TEXTS, ShellReading
from holdfast.lint.readers.shell.simple_commands import CommandReader

if TYPE_CHECKING:
    from tree_sitter import Node


class ShellWalker(BranchWalker):
    """One text: everything but its simple commands, which are for simple_commands.py."""

    def __init__(
        self,
        passage: NestedText,
        reading: ShellReading,
        scope: ShellScope,
        *,
        around: tuple[str, ...] = (),
        loops: tuple[int, ...] = (),
        depth: int = 0,
    ) -> None:
        super().__init__(passage, reading, scope, loops=loops, depth=depth)
        self.commander = CommandReader(self.expander, self.assigner, reading, around, self._nested)

    # --- dispatch -----------------------------------------------------------------------------

    def walk(self) -> None:
        self.reading.asks(self.passage.data.decode("utf-8", "replace"))
        if (job := sbatch.job(self.passage)) is not None:
            self.reading.jobs.append(job)
        root = grammar.parse(self.expander.data, self.reading.budget)
        self.reading.stumbled = self.reading.stumbled or root.has_error
        self.statement(root)

    def _nested(self, passage: NestedText, scope: ShellScope, around: tuple[str, ...]) -> None:
        """A text inside this one: of `bash -c`, of a here-document."""
        self.reading.texts += 1
        if self.depth >= DEEPEST or self.reading.texts >= MOST_TEXTS:
            self.reading.cut = True
        else:
            loops, depth = self.loops, self.depth + DEEPEST // 4
            ShellWalker(
                passage, self.reading, scope, around=around, loops=loops, depth=depth
            ).walk()

    def statement(self, node: Node) -> int | None:
        if self.depth > DEEPEST:
            self.reading.cut = True
            return None
        self.depth += 1
        try:
            if handler := STATEMENTS.get(node.type):
                return handler(self, node)
            self.statements(node)
        finally:
            self.depth -= 1
        return None

    def statements(self, node: Node) -> None:
        children = node.children
        for child, after in itertools.zip_longest(children, children[1:]):
            if not child.is_named:
                continue
            was = self.background
            self.background = was or (after is not None and after.type == "&")
            self.statement(child)
            self.background = was

    def simple(self, node: Node) -> int | None:
        index = self.commander.simple(node, loops=self.loops, background=self.background)
        self._call(index)
        return index

    def redirected(self, node: Node) -> int | None:
        body = node.child_by_field_name("body")
        rest = [child for child in node.children if body is None or child != body]
        if body is not None and body.type == "command":
            index = self.commander.simple(body, rest, loops=self.loops, background=self.background)
            self._call(index)
            self._behind_documents(rest, index)
            return index
        index = self.statement(body) if body is not None else None
        for one in rest:
            self.commander.redirection(one)
        return index

    def _behind_documents(self, redirections: list[Node], index: int | None) -> None:
        """`cat <<EOF | tee FILE`: the grammar hangs what follows on the here-document."""
        for redirection in redirections:
            before, spelled = index, self.commander.spelled
            for child in redirection.children if redirection.type == "heredoc_redirect" else ():
                if child.type in ("pipeline", "command", "list"):
                    behind = self.statement(child)
                    if child.type == "pipeline" and before is not None and behind is not None:
                        self.commander.piped(before, spelled.get(before), behind)

    def _call(self, index: int | None) -> None:
        """A function of this script: what it sets is now set."""
        called = (
            self.functions.get(self.reading.commands[index].name) if index is not None else None
        )
        if called is not None:
            self.scope.apply(called)

    def assignment(self, node: Node) -> None:
        self.assigner.assign(node, by="shell")

    def declaration(self, node: Node) -> None:
        self.assigner.declare(node)

    def unset(self, node: Node) -> None:
        self.assigner.unset(node)

    def substitutions_only(self, node: Node) -> None:
        for found in grammar.substitutions(node):
            self.substitution(found, self.scope, 0)

    # --- lists and pipelines ------------------------------------------------------------------

    def listed(self, node: Node) -> None:
        """`a && b || c` leans to the left: a long one is no deep one."""
        steps: list[tuple[str, Node]] = []
        while node.type == "list" and len(node.children) >= 3:
            steps.append((node.children[1].type, node.children[-1]))
            node = node.children[0]
        before = node
        self.statement(before)
        for operator, step in reversed(steps):
            if operator == "||" or before.type in ("test_command", "negated_command"):
                self._maybe(step)
            else:  # what follows && relies on what went before
                self.statement(step)
            before = step

    def _maybe(self, node: Node) -> None:
        self.join([functools.partial(self.statement, node)], one_is_taken=False)

    def pipeline(self, node: Node) -> int | None:
        """Each part runs in its own shell."""
        first: int | None = None
        before: int | None = None
        for stage in node.named_children:
            spelled = self.commander.spelled
            index = self.apart(functools.partial(self.statement, stage))
            if before is not None and index is not None:
                self.commander.piped(before, spelled.get(before), index)
            first, before = (index if first is None else first), index
        return first

    def negated(self, node: Node) -> int | None:
        index = None
        for child in node.named_children:
            index = self.statement(child)
        return index


STATEMENTS: dict[str, Callable[[ShellWalker, Node], int | None]] = {
    "command": ShellWalker.simple,
    "redirected_statement": ShellWalker.redirected,
    "negated_command": ShellWalker.negated,
    "pipeline": ShellWalker.pipeline,
    "list": ShellWalker.listed,
    "subshell": ShellWalker.subshell,
    "if_statement": ShellWalker.fork,
    "case_statement": ShellWalker.cases,
    "while_statement": ShellWalker.loop,
    "for_statement": ShellWalker.loop,
    "c_style_for_statement": ShellWalker.loop,
    "function_definition": ShellWalker.function,
    "variable_assignment": ShellWalker.assignment,
    "declaration_command": ShellWalker.declaration,
    "unset_command": ShellWalker.unset,
    "test_command": ShellWalker.substitutions_only,
    "command_substitution": ShellWalker.subshell,
    "process_substitution": ShellWalker.subshell,
    "file_redirect": ShellWalker.substitutions_only,
    "comment": lambda _walker, _node: None,
}
