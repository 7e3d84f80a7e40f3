"""What is looked at before nodes train together: whether they differ, and the paths between them.

The coordinator asks this at every look while it forms a round. Nodes that have passed together are
not tried again; for one that joins later, the paths between it and the others are.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast import catalogue
from holdfast.analysis.nodes import ClockOffset
from holdfast.analysis.nodes.targets import measured_pairs
from holdfast.findings import Finding, Status
from holdfast.nodes.probing.messages import ProbeRequest
from holdfast.nodes.probing.plan import listening_addresses
from holdfast.run.nodes.messages import NodeCard
from holdfast.run.nodes.nodes_facts import machines, nodes_facts
from holdfast.run.nodes.path_trials import Addresses, PathTrials, TrialOutcome
from holdfast.view import text

MOST_PAIRWISE = 256
"""nodes of which each tries the ways to all others before the start"""
MOST_TRIED = 8
"""nodes of which it is asked whether the others are fine without them"""


class GateNews(NamedTuple):
    requests: tuple[tuple[str, ProbeRequest], ...] = ()
    """to be sent, or to be handed to this node's own station"""
    lines: tuple[str, ...] = ()
    """for the screens of all nodes"""
    without: tuple[str, ...] = ()
    """nodes to leave out: the others can do without them"""
    why: str = ""
    """they are left out"""
    stop: str = ""
    """why no round can start: the job ends on all nodes"""


@dataclass
class StartGate:
    own: str
    """the node that coordinates"""
    port: int
    """where the launchers meet"""
    least: int
    trials: PathTrials
    """shared with those that are asked for while the job runs"""
    clocks: dict[str, ClockOffset] = field(default_factory=dict)
    """of each node against this one, as it joined"""
    _passed: frozenset[frozenset[str]] = frozenset()
    """pairs of launchers, by identity, whose paths were tried and pass"""
    _compared: frozenset[str] = frozenset()
    _together: set[str] = field(default_factory=set)
    """launchers that were found fine with others"""
    _said: set[str] = field(default_factory=set)
    _trial: TrialOutcome | None = None
    """the newest that was judged"""
    _asked: bool = False
    _asked_of: tuple[frozenset[str], int] | None = None
    _answer: bool = False

    def passed(self, cards: Mapping[str, NodeCard]) -> bool:
        """All of these may start together."""
        identities = {card.identity for card in cards.values()}
        fine = identities <= self._compared and self._all_passed(_looked_at(cards))
        if fine:
            self._together |= identities
        return fine

    def _all_passed(self, cards: Mapping[str, NodeCard]) -> bool:
        """It is asked twice a look, of all pairs: again only when something has changed."""
        asked = (frozenset(card.identity for card in cards.values()), len(self._passed))
        if asked != self._asked_of:
            self._asked_of = asked
            self._answer = all(pair in self._passed for pair in pairs_to_try(cards))
        return self._answer

    def look(self, cards: Mapping[str, NodeCard], now: float) -> GateNews:
        """`cards`: of all launchers that are here, this one included."""
        checked = _looked_at(cards)
        if self.passed(cards):
            return GateNews()
        identities = frozenset(card.identity for card in cards.values())
        if not identities <= self._compared:
            self._compared = self._compared | identities
            other = self._new(_other_commands(cards, self.own))
            if news := self._judged(checked, None):
                return news._replace(lines=(*other, *news.lines))
            if other:
                return GateNews(lines=other)
        if self._asked and not self.trials.busy and self.trials.newest is not self._trial:
            self._asked, self._trial = False, self.trials.newest
            return self._after_trial(checked)
        if not self._asked:
            names = {card.identity: name for name, card in checked.items()}
            untried = [pair for pair in pairs_to_try(checked) if pair not in self._passed]
            if untried and not self.trials.busy:
                self._asked = True
                self.trials.want([way for pair in untried for way in _ways(pair, names)])
        addresses = {name: addresses_of(card) for name, card in cards.items()}
        return GateNews(requests=tuple(self.trials.look(now, addresses)))

    def _after_trial(self, checked: Mapping[str, NodeCard]) -> GateNews:
        trial = self._trial
        assert trial is not None
        tried = {name for pair in trial.pairs for name in pair}
        judged = {name: card for name, card in checked.items() if name in tried}
        answered = {name: card for name, card in judged.items() if name not in trial.silent}
        news = self._judged(answered, trial) or GateNews()
        if news.stop:
            return news
        # A node that did not answer is not held back: 'could not look' stops no job.
        here = {name: card for name, card in judged.items() if name not in news.without}
        self._passed |= frozenset(
            frozenset((here[a].identity, here[b].identity))
            for a, b in trial.pairs
            if a in here and b in here
        )
        unseen = [f"the paths of {name} were not tried: it did not answer" for name in trial.silent]
        return news._replace(lines=(*news.lines, *unseen))

    def _judged(self, cards: Mapping[str, NodeCard], trial: TrialOutcome | None) -> GateNews | None:
        found = self._found(cards, trial)
        errors = [one for one in found if catalogue.stops_a_start(one)]
        others = [
            one
            for one in found
            if one.status in (Status.WARNING, Status.ERROR) and one not in errors
        ]
        lines = self._new_lines([*others, *errors])
        if not errors:
            return GateNews(lines=lines) if lines else None
        left = self._left_out(cards, trial, errors)
        if not left:
            return GateNews(lines=lines, stop=_headline(errors))
        words = f"starting without {', '.join(left)}"
        return GateNews(lines=(*lines, words), without=left, why=_headline(errors))

    def _found(self, cards: Mapping[str, NodeCard], trial: TrialOutcome | None) -> list[Finding]:
        facts = nodes_facts(
            cards, coordinator=self.own, port=self.port, trial=trial, clocks=self.clocks
        )
        return catalogue.check_nodes(facts, catalogue.choose([], [])) if facts else []

    def _left_out(
        self,
        cards: Mapping[str, NodeCard],
        trial: TrialOutcome | None,
        errors: Sequence[Finding],
    ) -> tuple[str, ...]:
        """The fewest nodes without which the others are fine; () where that is not possible.

        Between nodes that differ the user has to choose, except where one comes to nodes that may
        train together: those go on without it.
        """
        left: list[str] = []
        while errors:
            here = {name: card for name, card in cards.items() if name not in left}
            removable = [
                name
                for name in _named_in(errors, here)
                if name != self.own and (trial or self._is_newcomer(cards[name]))
            ]
            if not removable or len(here) - 1 < self.least:
                return ()
            without = {
                name: self._errors({n: card for n, card in here.items() if n != name}, trial)
                for name in removable[:MOST_TRIED]
            }
            best = min(without, key=lambda name: (len(without[name]), -list(cards).index(name)))
            left.append(best)
            errors = without[best]
        return tuple(left)

    def _is_newcomer(self, card: NodeCard) -> bool:
        return bool(self._together) and card.identity not in self._together

    def _errors(self, cards: Mapping[str, NodeCard], trial: TrialOutcome | None) -> list[Finding]:
        return [one for one in self._found(cards, trial) if catalogue.stops_a_start(one)]

    def _new_lines(self, findings: Iterable[Finding]) -> tuple[str, ...]:
        """Each is said once."""
        told = self._new([text.finding(one, colour=False) for one in findings])
        return tuple(line for words in told for line in words.splitlines())

    def _new(self, told: Sequence[str]) -> tuple[str, ...]:
        new = tuple(words for words in told if words not in self._said)
        self._said.update(new)
        return new


def _other_commands(cards: Mapping[str, NodeCard], own: str) -> list[str]:
    """Arguments may differ on purpose: a note, and no node is stopped."""
    mine = cards[own].job
    return [
        f"{name} was started with another command: `{card.job}`, here `{mine}`"
        for name, card in cards.items()
        if card.job and mine and card.job != mine
    ]


def _named_in(errors: Iterable[Finding], here: Iterable[str]) -> list[str]:
    """The nodes of which these findings speak."""
    spoken = {one.host for one in errors} | {e.host for one in errors for e in one.evidence}
    words = {word for one in errors for word in re.split(r"[\s,;:]+", one.summary)}
    return [name for name in here if name in spoken or name in words]


def _headline(errors: Sequence[Finding]) -> str:
    first = errors[0]
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"{first.slug}: {first.summary}{more}"


def _looked_at(cards: Mapping[str, NodeCard]) -> dict[str, NodeCard]:
    """Launchers that were allowed to look at their machine, one of each machine."""
    return {name: card for name, card in machines(cards).items() if card.facts is not None}


def pairs_to_try(cards: Mapping[str, NodeCard]) -> list[frozenset[str]]:
    """By identity: every two; of very many nodes each with a few, as `measured_pairs` chooses."""
    if len(cards) > MOST_PAIRWISE:
        near = measured_pairs(dict.fromkeys(cards, ""))
        return list({frozenset((cards[a].identity, cards[b].identity)): None for a, b in near})
    identities = [card.identity for card in cards.values()]
    return [
        frozenset((one, other))
        for at, one in enumerate(identities)
        for other in identities[at + 1 :]
    ]


def _ways(pair: Collection[str], names: Mapping[str, str]) -> list[tuple[str, str]]:
    a, b = (names[identity] for identity in pair)
    return [(a, b), (b, a)]


def addresses_of(card: NodeCard) -> Addresses:
    found = listening_addresses(card.facts) if card.facts else ()
    return found or tuple(("", address) for address in card.addresses)
