"""Numbers that variables have, each with the variable it came from; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from holdfast.errors import ConfigError


class NodeCount(NamedTuple):
    """How many nodes a job has, and what says so."""

    least: int
    most: int
    source: str

    def in_words(self) -> str:
        span = f"{self.least}" if self.least == self.most else f"{self.least} to {self.most}"
        return f"{self.source} says {span} nodes"


class StorePort(NamedTuple):
    """Where the store of the job is going to listen."""

    port: int
    source: str


def number_in(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name, "").strip()
    if not text:
        return None
    if (number := whole(text)) is None:
        raise ConfigError(f"{name} must be a whole number >= 0, got {text[:40]!r}")
    return number


def whole(text: str) -> int | None:
    """Plain digits, and no more of them than any count of nodes, ranks or ports has."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
