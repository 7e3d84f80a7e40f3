"""Values of several nodes compared: which differ, and which node is the odd one out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from holdfast import text
from holdfast.analysis.machine import Unread
from holdfast.analysis.nodes.facts import Node, NodesFacts

T = TypeVar("T")


class Difference(NamedTuple):
    """What the nodes have, where they do not all have the same."""

    values: Mapping[str, str]
    """node -> value"""
    usual: str | None
    """what more than half of the nodes have; None where no value has that majority"""

    @property
    def odd(self) -> tuple[str, ...]:
        """The nodes that have something else; () when nothing is usual: undecided."""
        if self.usual is None:
            return ()
        return tuple(node for node, value in self.values.items() if value != self.usual)

    @property
    def listed(self) -> str:
        """'2.13.0 on a and b, 2.12.1 on c'"""
        by_value: dict[str, list[str]] = {}
        for node, value in self.values.items():
            by_value.setdefault(value, []).append(node)
        order = sorted(by_value, key=lambda value: (-len(by_value[value]), value))
        return ", ".join(f"{value} on {text.names(by_value[value])}" for value in order)


def compare(values: Mapping[str, str]) -> Difference | None:
    """None when all nodes have the same; with two nodes neither is the odd one."""
    if len(set(values.values())) < 2:
        return None
    value, count = Counter(values.values()).most_common(1)[0]
    return Difference(dict(values), value if count * 2 > len(values) else None)


class Gap(NamedTuple):
    """A node of which something could not be read."""

    node: str
    why: str


def of_each(facts: NodesFacts, ask: Callable[[Node], T | Unread]) -> tuple[dict[str, T], list[Gap]]:
    """What each node answers, and the nodes that could not."""
    answers: dict[str, T] = {}
    gaps = []
    for node in facts.nodes:
        answer = ask(node)
        if isinstance(answer, Unread):
            gaps.append(Gap(node.name, answer.why))
        else:
            answers[node.name] = answer
    return answers, gaps
