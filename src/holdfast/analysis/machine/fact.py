"""The base of every fact, and how a gap is spoken of."""

from __future__ import annotations

from typing import TypeVar

import msgspec


class Fact(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The base of every fact; the tag lets `Shm | Unread` travel as bytes."""


class Unread(Fact, frozen=True):
    """We could not look, because…"""

    why: str
    timed_out: bool = False
    """its reader might have answered later"""


class CouldNotLook(Exception):  # noqa: N818 - it is an answer, not an error
    """Raised by `known`; the catalogue turns it into a `skipped` finding."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


T = TypeVar("T")


def known(value: T | Unread) -> T:
    """The value, or stop this check with the reason why it could not be read."""
    if isinstance(value, Unread):
        raise CouldNotLook(value.why)
    return value
