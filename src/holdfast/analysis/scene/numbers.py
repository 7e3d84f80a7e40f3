"""What the ranks of a job report of their numbers: losses that are not finite, and whether replicas
hold the same parameters. Frozen nouns, no I/O, no judgement.

It comes from the hook inside each rank, by way of its events file (rank/events.py).
"""

from __future__ import annotations

from typing import Literal

import msgspec


class NotFinite(msgspec.Struct, frozen=True, kw_only=True):
    """A step that an optimizer took with numbers that are none."""

    attempt: int
    rank: int
    what: Literal["loss", "gradients"]
    """of gradients the norm that `clip_grad_norm_` works with: with DDP the same on all ranks"""
    step: int
    """of this attempt"""
    value: str
    """'nan', 'inf' or '-inf'; of several losses in one step their sum"""
    row: int
    """how many steps in a row it has been so; the third is the last that is reported"""
    heard_at: float
    """when the launcher heard of it"""


class ReplicaDifference(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks that are to hold the same parameters do not. The first time in an attempt."""

    attempt: int
    step: int
    equal_until: int | None
    """the last step at which they were equal; None when they never were"""
    kinds: tuple[tuple[int, ...], ...]
    """ranks that hold the same, the most first"""
    where: tuple[str, ...]
    """names of the parameters in which they differ, or 'first … last' of some of which one does"""
    devices: dict[int, str] = {}
    """what each of them computes on, as far as known"""

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted(rank for kind in self.kinds for rank in kind))


class RankNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """All of it, of this attempt."""

    not_finite: tuple[NotFinite, ...] = ()
    differences: tuple[ReplicaDifference, ...] = ()
