"""What the names of a script stand for: every value that each is given, scope by scope.

Only what the text shows. A name that is also a parameter, a loop's variable or the like is
unknown, and a face that asks about it must be content with that.
"""

from __future__ import annotations

import ast

from holdfast.analysis.source.program import Function, Program, dotted, once_per_program

Key = tuple[ast.AST | None, str]
BINDERS = frozenset(
    {ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.withitem, ast.For, ast.AsyncFor}
    | {ast.comprehension, ast.arg, ast.Global}
)


class Names:
    """`x = …`, `self.x = …`, `with … as x`, by the function (class, module) they belong to."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._values: dict[Key, list[ast.expr]] = {}
        self._unknown: set[Key] = set()
        self._globals: dict[ast.AST | None, set[str]] = {}
        told = [node for node in program.parents if node.__class__ in BINDERS]
        for node in told:
            if isinstance(node, ast.Global):
                self._globals.setdefault(program.function_of(node), set()).update(node.names)
        for node in told:
            self._collect(node)

    def _collect(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._bind(target, node.value)
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr):
            if node.value is not None:
                self._bind(node.target, node.value)
        elif isinstance(node, ast.withitem):
            if node.optional_vars is not None:
                self._bind(node.optional_vars, node.context_expr)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            self._bind(node.target, None)
        elif isinstance(node, ast.arg):
            self._unknown.add((self._program.function_of(node), node.arg))

    def _bind(self, target: ast.expr, value: ast.expr | None) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            self._unpack(target, value)
        elif name := dotted(target):
            key = (self.scope(name, target), name)
            if value is None:
                self._unknown.add(key)
            else:
                self._values.setdefault(key, []).append(value)

    def _unpack(self, target: ast.Tuple | ast.List, value: ast.expr | None) -> None:
        parts: list[ast.expr | None] = [None] * len(target.elts)
        if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(parts):
            parts = list(value.elts)
        for place, part in zip(target.elts, parts, strict=True):
            self._bind(place.value if isinstance(place, ast.Starred) else place, part)

    # --- questions ------------------------------------------------------------------------------

    def scope(self, name: str, at: ast.AST) -> ast.AST | None:
        """Where a name that is set at this node belongs: a function, a class for `self.x`, None
        for the module."""
        if name.startswith("self."):
            return self._class_of(at)
        function = self._program.function_of(at)
        if name in self._globals.get(function, ()):
            return None
        return function

    def home(self, name: str, at: ast.AST) -> ast.AST | bool | None:
        """The scope that a name read at this node comes from; False when none is known."""
        if name.startswith("self."):
            owner = self._class_of(at)
            return owner if self._has((owner, name)) else False
        scope: ast.AST | None = at if isinstance(at, Function) else None
        scope = scope or self._program.function_of(at)
        while scope is not None:
            if name not in self._globals.get(scope, ()) and self._has((scope, name)):
                return scope
            scope = self._program.function_of(scope)
        return None if self._has((None, name)) else False

    def values(self, name: str, at: ast.AST) -> list[ast.expr]:
        """Everything it is set to where it comes from; empty when that is not known."""
        home = self.home(name, at)
        if isinstance(home, bool) or (home, name) in self._unknown:
            return []
        return self._values.get((home, name), [])

    def follow(self, node: ast.expr) -> ast.expr:
        """The one value of a name; the expression itself where there is none or several."""
        seen = [node]
        while (name := dotted(node)) and len(found := self.values(name, node)) == 1:
            node = found[0]
            if node in seen:
                break
            seen.append(node)
        return node

    def _has(self, key: Key) -> bool:
        return key in self._values or key in self._unknown

    def _class_of(self, node: ast.AST) -> ast.AST | None:
        return next((a for a in self._program.above(node) if isinstance(a, ast.ClassDef)), None)


@once_per_program
def names(program: Program) -> Names:
    """Built once for the faces that ask about one script after the other."""
    return Names(program)
