"""Who comes through a condition."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.analysis.source.ranks.rank_names import RankScope

SHOWN = 48
"""characters of a condition in a sentence"""


class RankSplit(NamedTuple):
    """A condition that holds on some ranks only."""

    scope: RankScope
    zero: bool | None
    """True: holds on rank 0 alone; False: on all but rank 0; None: on some others"""
    text: str
    """the condition as written"""
    negated: bool = False
    """`rank != 3`"""
    turned: bool = False
    """what is meant is that `text` does not hold: the `else:` of it"""
    sure: bool = True
    """False: it may hold everywhere (`rank in ranks`, `first <= rank < last`)"""
    one: bool = False
    """it is about one rank (`rank == 3`, `rank != 0`)"""
    members: bool = False
    """`rank in ranks`: a part of the job, as the script calls it"""
    mixed: bool = False
    """something else decides too: `rank == 0 and step > 5`"""
    group: str = ""
    """of `dist.get_rank(group)`: the group as written"""
    ranks: frozenset[int] = frozenset()
    """that it sets apart from all others, where it says them: `rank in [0, 1]`, `rank >= 4`"""

    def inverted(self) -> RankSplit:
        zero = None if self.zero is None else not self.zero
        return self._replace(zero=zero, negated=not self.negated, turned=not self.turned)

    @property
    def first(self) -> int:
        """It sets the first so many ranks apart, which may be all there are; 0: others."""
        count = len(self.ranks)
        return count if count > 1 and self.ranks == frozenset(range(count)) else 0

    def may_complete(self, other: RankSplit) -> bool:
        """Whether those that `other` leaves out may be let through here."""
        if self.zero is not None and other.zero is not None:
            return self.zero != other.zero
        return (self.text, self.turned) != (other.text, other.turned)

    @property
    def where(self) -> str:
        """Where it lets through, for a sentence: 'where `rank == 0`'."""
        text = self.text if len(self.text) <= SHOWN else f"{self.text[: SHOWN - 1]}…"
        if text.startswith("@"):
            return f"on one rank, by {text}"
        return f"where `{text}` is false" if self.turned else f"where `{text}`"
