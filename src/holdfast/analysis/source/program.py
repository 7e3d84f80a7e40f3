"""A Python script, with its calls resolved through its imports. Nothing is imported or run.

`dist.all_reduce(x)` after `import torch.distributed as dist` is `torch.distributed.all_reduce`,
however it was imported. What a name is bound to at run time is not followed further than that:
a face that needs more must be content with not knowing.
"""

from __future__ import annotations

import ast
import builtins
import functools
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

from holdfast.analysis.source.tree_walk import walk
from holdfast.findings import Evidence, Place

T = TypeVar("T")
Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef | ast.Module


class Call:
    """One call: `name` is the dotted name after imports, '' when its root is no import."""

    __slots__ = ("name", "node", "written")

    def __init__(self, node: ast.Call, name: str, written: str) -> None:
        self.node = node
        self.name = name
        self.written = written
        """as the script has it: 'work.wait', 'self.model.step'; '' for computed ones"""

    @property
    def method(self) -> str:
        """The last part: 'wait' of 'work.wait'."""
        return self.written.rpartition(".")[2]

    def keyword(self, name: str) -> ast.expr | None:
        return next((k.value for k in self.node.keywords if k.arg == name), None)

    def argument(self, position: int, name: str) -> ast.expr | None:
        """By position or by keyword; None where it is not given or hides behind a star."""
        plain = self.node.args
        if position < len(plain) and not any(isinstance(a, ast.Starred) for a in plain):
            return plain[position]
        return self.keyword(name)

    @property
    def starred(self) -> bool:
        """`f(*args)` or `f(**options)`: what is not seen may still be given."""
        return any(isinstance(a, ast.Starred) for a in self.node.args) or any(
            k.arg is None for k in self.node.keywords
        )


class Program:
    """The tree, and what one walk over it collects. Lines are those of the file."""

    def __init__(
        self, tree: ast.Module, text: str, file: str, *, first_line: int = 1, indent: int = 0
    ) -> None:
        self.tree = tree
        self.text = text
        self.file = file
        self.first_line = first_line
        """the line of the file on which the text begins"""
        self.indent = indent
        """columns before the code: of a fenced block inside a list"""
        self.parents: dict[ast.AST, ast.AST] = {}
        self.calls: list[Call] = []
        self.functions: list[Function] = []
        self.classes: list[ast.ClassDef] = []
        self.loops: list[ast.For | ast.AsyncFor | ast.While] = []
        self.ifs: list[ast.If] = []
        self.tries: list[ast.Try] = []
        self.assigns: list[ast.Assign | ast.AnnAssign | ast.AugAssign] = []
        self.imports: dict[str, str] = {}
        """local name -> dotted name"""
        self.stars: list[str] = []
        """modules of `from x import *`"""
        self.bound: set[str] = set()
        """every name that is bound somewhere in the file"""
        self._order: list[ast.AST] = []
        """each node before what is below it, and that before anything else"""
        self._answers: dict[Callable[[Program], Any], Any] = {}
        self._walk()
        self._alias()
        self._resolve_calls()

    # --- built once ---------------------------------------------------------------------------

    def _walk(self) -> None:
        unresolved: list[ast.Call] = []
        keep: dict[type, Callable[[Any], None]] = {
            ast.Call: unresolved.append,
            ast.Name: self._name,
            ast.arg: lambda node: self.bound.add(node.arg),
            ast.ExceptHandler: lambda node: self.bound.add(node.name or ""),
            ast.FunctionDef: self._function,
            ast.AsyncFunctionDef: self._function,
            ast.ClassDef: self._class,
            ast.For: self.loops.append,
            ast.AsyncFor: self.loops.append,
            ast.While: self.loops.append,
            ast.If: self.ifs.append,
            ast.Try: self.tries.append,
            ast.Assign: self.assigns.append,
            ast.AnnAssign: self.assigns.append,
            ast.AugAssign: self.assigns.append,
            ast.Import: self._import,
            ast.ImportFrom: self._import_from,
        }
        self._order, self.parents = walk(self.tree, keep)
        unresolved.sort(key=_position)
        self.calls = [Call(node, "", dotted(node.func)) for node in unresolved]
        for found in (self.functions, self.classes, self.loops, self.ifs, self.tries, self.assigns):
            found.sort(key=_position)

    def _name(self, node: ast.Name) -> None:
        if node.ctx.__class__ is not ast.Load:
            self.bound.add(node.id)

    def _function(self, node: Function) -> None:
        self.functions.append(node)
        self.bound.add(node.name)

    def _class(self, node: ast.ClassDef) -> None:
        self.classes.append(node)
        self.bound.add(node.name)

    def _import(self, node: ast.Import) -> None:
        for alias in node.names:
            local = alias.asname or alias.name.partition(".")[0]
            self.imports[local] = alias.name if alias.asname else local

    def _import_from(self, node: ast.ImportFrom) -> None:
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            if alias.name == "*":
                self.stars.append(module)
            else:
                self.imports[alias.asname or alias.name] = f"{module}.{alias.name}"

    def _alias(self) -> None:
        """`dist = torch.distributed` at the top of a file is as good as an import."""
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute):
                known = self._through_imports(dotted(node.value))
                names = [target.id for target in node.targets if isinstance(target, ast.Name)]
                if known:
                    self.imports.update((name, known) for name in names if name not in self.imports)

    def _resolve_calls(self) -> None:
        for call in self.calls:
            call.name = self._through_imports(call.written)

    def _through_imports(self, written: str) -> str:
        root, dot, rest = written.partition(".")
        if root in self.imports:
            return self.imports[root] + dot + rest
        if not dot and root not in self.bound and hasattr(builtins, root):
            return f"builtins.{root}"
        return ""

    # --- answers that are kept ------------------------------------------------------------------

    def answer(self, question: Callable[[Program], T]) -> T:
        """What a question says of this program; asked once. Two threads that ask at the same time
        may both work it out, and get the same answer."""
        answers = self._answers
        if question not in answers:
            answers.setdefault(question, question(self))
        return cast("T", answers[question])

    def forget(self) -> None:
        """Let the answers go: most of them hold the program, and such a cycle keeps the whole tree
        until the garbage collector comes."""
        self._answers = {}

    # --- questions ------------------------------------------------------------------------------

    def name_of(self, node: ast.AST) -> str:
        """The dotted name of an expression after imports; '' when its root is no import."""
        return self._through_imports(dotted(node))

    def place(self, node: ast.AST) -> Place:
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        if not self.text.isascii():  # the tree counts bytes, editors count characters
            before = self._lines[line - self.first_line].encode()[:column]
            column = len(before.decode(errors="replace"))
        return Place(file=self.file, line=line, column=column + 1 + self.indent)

    @functools.cached_property
    def _lines(self) -> list[str]:
        """As Python counts them: not at every character that `splitlines` takes for an end."""
        return re.split(r"\r\n|\r|\n", self.text)

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """Its parents, from the nearest to the module."""
        while (parent := self.parents.get(node)) is not None:
            yield parent
            node = parent

    def function_of(self, node: ast.AST) -> Function | None:
        """The function whose body it runs in; None at module level (and in a class body)."""
        return next((a for a in self.above(node) if isinstance(a, Function)), None)

    def called(self, *names: str) -> list[Call]:
        """Calls of these dotted names, in order of the text."""
        found = [call for name in names for call in self._by_name.get(name, ())]
        return sorted(found, key=lambda call: _position(call.node)) if len(names) > 1 else found

    def inside(self, call: Call, body: ast.AST) -> bool:
        first, last = self._spans[body]
        return first <= self._spans[call.node][0] <= last

    def calls_in(self, *bodies: ast.AST) -> list[Call]:
        """Calls anywhere below these nodes, nested functions included, in order of the text."""
        numbers, calls = self._by_number
        found: set[Call] = set()
        for body in bodies:
            first, last = self._spans[body]
            found.update(calls[bisect_left(numbers, first) : bisect_right(numbers, last)])
        return sorted(found, key=lambda call: _position(call.node))

    def function(self, name: str) -> Function | None:
        """The only function of this name in the file; None when there are none or several."""
        found = self._functions_by_name.get(name, ())
        return found[0] if len(found) == 1 else None

    @functools.cached_property
    def _by_name(self) -> dict[str, list[Call]]:
        found: dict[str, list[Call]] = {}
        for call in self.calls:
            found.setdefault(call.name, []).append(call)
        return found

    @functools.cached_property
    def _functions_by_name(self) -> dict[str, list[Function]]:
        found: dict[str, list[Function]] = {}
        for one in self.functions:
            found.setdefault(one.name, []).append(one)
        return found

    @functools.cached_property
    def _spans(self) -> dict[ast.AST, tuple[int, int]]:
        """Its number in the walk, and that of the last node below it."""
        last = list(range(len(self._order)))
        numbers = {node: number for number, node in enumerate(self._order)}
        for number in range(len(last) - 1, 0, -1):
            above = numbers[self.parents[self._order[number]]]
            last[above] = max(last[above], last[number])
        return {node: (number, last[number]) for node, number in numbers.items()}

    @functools.cached_property
    def _by_number(self) -> tuple[list[int], list[Call]]:
        ordered = sorted(self.calls, key=lambda call: self._spans[call.node][0])
        return [self._spans[call.node][0] for call in ordered], ordered

    def target(self, call: Call) -> Function | None:
        """The function of this file that a call runs: `save(…)`, `self.save(…)`."""
        root, _, rest = call.written.partition(".")
        if root in ("self", "cls") and rest and "." not in rest:
            return self.function(rest)
        return self.function(root) if not rest else None

    @property
    def main_guards(self) -> list[ast.If]:
        """`if __name__ == "__main__":`"""
        return [node for node in self.ifs if "__name__" in ast.dump(node.test)]


def once_per_program(question: Callable[[Program], T]) -> Callable[[Program], T]:
    """A question that several faults ask about each script: its answer is kept on the program."""

    @functools.wraps(question)
    def ask(program: Program) -> T:
        return program.answer(question)

    return ask


def _position(node: ast.stmt | ast.expr) -> tuple[int, int]:
    return node.lineno, node.col_offset


def dotted(node: ast.AST) -> str:
    """'a.b.c' of names and attributes; '' of anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    parts.append(node.id)
    return ".".join(reversed(parts))


def constant(node: ast.AST | None) -> object:
    """The value of a literal; None of anything else (and of None itself)."""
    return node.value if isinstance(node, ast.Constant) else None


def cited(node: ast.AST, file: str) -> Evidence:
    """A piece of Python as evidence."""
    return Evidence(quote=ast.unparse(node), source=file, line=getattr(node, "lineno", None))
