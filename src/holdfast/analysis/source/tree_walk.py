"""One walk over the tree of a Python script; written for speed, since it is half of what lint does
on a large tree."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Mapping
from typing import Any

NO_NODES = frozenset(
    {
        *("ctx", "op", "ops", "names", "name", "id", "attr", "arg", "asname", "module", "level"),
        *("kind", "type_comment", "type_ignores", "conversion", "is_async", "simple", "rest"),
        *("cls_name", "kwd_attrs", "str", "tag", "lineno"),
    }
)
"""fields without a statement or expression that is asked for"""


def walk(
    tree: ast.Module, keep: Mapping[type, Callable[[Any], None]]
) -> tuple[list[ast.AST], dict[ast.AST, ast.AST]]:
    """Hands each node to what `keep` has for its class; all nodes, each before what is below it and
    that before anything else; and the parent of each."""
    order: list[ast.AST] = []
    parents: dict[ast.AST, ast.AST] = {}
    waiting: list[ast.AST] = [tree]
    while waiting:
        node: Any = waiting.pop()
        order.append(node)
        kind = node.__class__
        if kind in keep:
            keep[kind](node)
        for field in _children(kind):
            child = getattr(node, field)
            if child.__class__ is list:
                for one in child:
                    if isinstance(one, ast.AST):
                        parents[one] = node
                        waiting.append(one)
            elif child is not None:
                parents[child] = node
                waiting.append(child)
    return order, parents


@functools.cache
def _children(kind: type) -> tuple[str, ...]:
    fields: tuple[str, ...] = getattr(kind, "_fields", ())
    if kind is ast.Constant:  # its value may be anything
        return ()
    return tuple(field for field in fields if field not in NO_NODES)
