"""How a handler looks for words in the text of an exception.

`"timeout" in str(e).lower()`, `re.search("timed? ?out", str(e), re.I)`, `any(word in text for …)`:
each becomes a test that can be tried on a real text.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from holdfast.analysis.source.program import Program, constant

REGEX = {
    "re.search": re.search,
    "re.match": re.match,
    "re.fullmatch": re.fullmatch,
    "re.findall": re.search,
    "re.finditer": re.search,
}
METHODS = frozenset(["find", "rfind", "index", "count", "startswith", "endswith", "__contains__"])
FOLDS: dict[str, Callable[[str], str]] = {
    "lower": str.lower,
    "casefold": str.casefold,
    "upper": str.upper,
}


class TextTest(NamedTuple):
    node: ast.expr
    """the word or pattern looked for"""
    words: tuple[str, ...]
    how: str
    """'in', 'is', 'startswith', 'endswith', or a function of `re`"""
    fold: str
    """'lower', 'upper', 'casefold' or ''; 'ignore' of a pattern with re.I"""

    def finds(self, text: str) -> bool:
        """Whether any of its words is found in this text."""
        folded = FOLDS[self.fold](text) if self.fold in FOLDS else text
        return any(self._finds(word, folded) for word in self.words)

    def _finds(self, word: str, text: str) -> bool:
        if self.how in REGEX:
            try:
                found = REGEX[self.how](word, text, re.I if self.fold == "ignore" else 0)
            except re.error:
                return True  # not ours to judge
            return bool(found)
        if self.how == "startswith":
            return text.startswith(word)
        if self.how == "endswith":
            return text.endswith(word)
        return word == text if self.how == "is" else word in text


def text_tests(program: Program, handler: ast.ExceptHandler) -> Iterator[TextTest]:
    """Of the exception that this handler has caught, in order of the text."""
    if handler.name is None:
        return
    texts = {handler.name: ""}
    """names that stand for the exception or its text, and how their case was folded"""
    inside = [node for statement in handler.body for node in ast.walk(statement)]
    for node in inside:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            fold = _fold(node.value, texts)
            if fold is not None:
                texts[node.targets[0].id] = fold
    for node in inside:
        test = None
        if isinstance(node, ast.Compare):
            test = _compared(program, node, texts)
        elif isinstance(node, ast.Call):
            test = _called(program, node, texts)
        if test is not None:
            yield test


def _fold(node: ast.AST, texts: dict[str, str]) -> str | None:
    """How the case of the exception's text is folded in this expression; None: not in it."""
    folds = [texts[n.id] for n in ast.walk(node) if isinstance(n, ast.Name) and n.id in texts]
    if not folds:
        return None
    methods = (n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute))
    return next((method for method in methods if method in FOLDS), folds[0])


def _compared(program: Program, node: ast.Compare, texts: dict[str, str]) -> TextTest | None:
    if len(node.ops) != 1:
        return None
    left, right = node.left, node.comparators[0]
    if isinstance(node.ops[0], ast.In | ast.NotIn):
        how = "in"
    elif isinstance(node.ops[0], ast.Eq | ast.NotEq):
        how = "is"
        left, right = (left, right) if constant(left) is not None else (right, left)
    else:
        return None
    fold = _fold(right, texts)
    words = _words(program, left)
    return TextTest(left, words, how, fold) if words and fold is not None else None


def _called(program: Program, node: ast.Call, texts: dict[str, str]) -> TextTest | None:
    name = program.name_of(node.func)
    if name in REGEX and len(node.args) > 1:
        fold = _fold(node.args[1], texts)
        words = _words(program, node.args[0])
        if fold is None or not words:
            return None
        flags = " ".join(ast.unparse(part) for part in [*node.args[2:], *_values(node)])
        ignore = re.search(r"\.(I|IGNORECASE)\b", flags)
        return TextTest(node.args[0], words, name, "ignore" if ignore else fold)
    if isinstance(node.func, ast.Attribute) and node.func.attr in METHODS and node.args:
        fold = _fold(node.func.value, texts)
        words = _words(program, node.args[0])
        how = node.func.attr if node.func.attr.endswith("swith") else "in"
        return TextTest(node.args[0], words, how, fold) if words and fold is not None else None
    return None


def _values(node: ast.Call) -> list[ast.expr]:
    return [keyword.value for keyword in node.keywords]


def _words(program: Program, node: ast.expr) -> tuple[str, ...]:
    """A literal, a tuple of them, or the variable of `for word in (…)`."""
    if isinstance(node, ast.Constant):
        return (node.value,) if isinstance(node.value, str) else ()
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return tuple(v for part in node.elts if isinstance(v := constant(part), str))
    if not isinstance(node, ast.Name):
        return ()
    for above in program.above(node):
        for part in getattr(above, "generators", ()):
            if isinstance(part.target, ast.Name) and part.target.id == node.id:
                return _words(program, part.iter)
    return ()
