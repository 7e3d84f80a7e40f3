"""What is odd about how a job was started, said once: no verdict, and nothing is done about it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from holdfast import text
from holdfast.analysis.job import own_ranks
from holdfast.rank import delivery
from holdfast.run.watch.launcher_below import LauncherSearch
from holdfast.run.watch.rank_state import ObservedRank
from holdfast.view import run_screen

UNSEEN = 60.0
"""seconds after which a rank that holdfast is not in will not let it in any more"""


class Remarks:
    def __init__(self, screen: run_screen.Screen) -> None:
        self.screen = screen
        self.said: set[str] = set()
        self.launchers = LauncherSearch()

    def look(self, ranks: Sequence[ObservedRank], now: float) -> None:
        for name, line in (
            ("unseen", unseen(ranks, now, os.environ)),
            ("clash", own_ranks_clash(ranks)),
            ("launcher", self._launcher(ranks, now)),
        ):
            if line and name not in self.said:
                self.said.add(name)
                self.screen.say(line)

    def _launcher(self, ranks: Sequence[ObservedRank], now: float) -> str:
        return "" if "launcher" in self.said else self.launchers.sentence(ranks, now)


def unseen(ranks: Sequence[ObservedRank], now: float, environment: Mapping[str, str]) -> str:
    """Ranks that never wrote a page: no Python, or one that loads no sitecustomize."""
    blind = [
        rank.rank
        for rank in ranks
        if rank.beat is None
        and not rank.members
        and rank.death is None
        and now - rank.started_at > UNSEEN
    ]
    if not blind or delivery.is_off(environment):
        return ""
    return (
        f"{text.ranks(blind)} cannot be watched from within (no Python with torch seen in the "
        "process that was started): steps, exceptions and collectives are unknown, exits are not"
    )


def own_ranks_clash(ranks: Sequence[ObservedRank]) -> str:
    """Several ranks that each start ranks of their own, at one address."""
    if sum(bool(rank.members) for rank in ranks) < 2:
        return ""
    starters = own_ranks.clash(rank.view() for rank in ranks)
    return f"{own_ranks.sentence(starters)}; {own_ranks.FIX}" if starters else ""
