"""`$(( … ))` where everything in it is known."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node

DEEPEST = 30
LARGEST = 2**62
"""a shell computes in 64 bits; a larger number is a mistake"""

OPERATORS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda a, b: int(a / b) if abs(a) < 2**50 else a // b,
    "%": lambda a, b: a - b * int(a / b),
}

Raw = Callable[["Node"], str]
Number = Callable[[str], int | None]


def result(node: Node, raw: Raw, number: Number, depth: int = 0) -> int | None:
    """None where a part is unknown, or an operator none of the usual ones."""
    if depth > DEEPEST or node.has_error:
        return None
    kind = node.type
    if kind == "binary_expression" and len(node.children) == 3:
        return _binary(node, raw, number, depth)
    if kind in ("arithmetic_expansion", "parenthesized_expression"):
        inside = node.named_children
        return result(inside[0], raw, number, depth + 1) if len(inside) == 1 else None
    return _operand(kind, raw(node), number)


def _operand(kind: str, text: str, number: Number) -> int | None:
    if kind in ("number", "word"):
        return int(text) if text.isascii() and text.isdecimal() and len(text) < 18 else None
    if kind in ("variable_name", "simple_expansion", "expansion"):
        name = text.strip("${}")
        return number(name) if name.isidentifier() else None
    return None


def _binary(node: Node, raw: Raw, number: Number, depth: int) -> int | None:
    left = result(node.children[0], raw, number, depth + 1)
    right = result(node.children[2], raw, number, depth + 1)
    compute = OPERATORS.get(raw(node.children[1]))
    if left is None or right is None or compute is None:
        return None
    if right == 0 and raw(node.children[1]) in "/%":
        return None
    answer = compute(left, right)
    return answer if abs(answer) < LARGEST else None
