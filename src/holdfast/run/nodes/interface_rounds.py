"""Rounds, and with each the interface that its ranks take on this node."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.analysis.machine import MachineFacts
from holdfast.run.nodes import rank_interfaces
from holdfast.run.nodes.round_source import OpenStore, RoundPlace, RoundSource, ToldToEnd
from holdfast.view import run_screen


class InterfaceRounds:
    """A source of rounds; `settings` are for ranks of the newest. Each remark is made once."""

    def __init__(
        self,
        rounds: RoundSource,
        facts: MachineFacts,
        *,
        own_address: Callable[[RoundPlace], str],
        say: Callable[[str], None],
    ) -> None:
        self._rounds, self._facts = rounds, facts
        self._own_address, self._say = own_address, say
        self._said: set[rank_interfaces.InterfaceRemark] = set()
        self._chosen = rank_interfaces.RankInterfaces()

    def settings(self) -> dict[str, str]:
        return dict(self._chosen.settings)

    def next_round(self, open_store: OpenStore, told: ToldToEnd) -> RoundPlace:
        place = self._rounds.next_round(open_store, told)
        self._chosen = rank_interfaces.choose(self._facts, self._own_address(place))
        for remark in self._chosen.remarks:
            if remark not in self._said:
                self._said.add(remark)
                named = remark.slug and run_screen.named("notice", remark.slug, remark.words)
                self._say(named or remark.words)
        return place
