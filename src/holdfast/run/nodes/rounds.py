"""Which nodes form the next round, and when: a state machine, pure; the clock is passed in.

A round starts when every node of the one before is accounted for: it said that its ranks are gone,
or it was lost so long ago that its launcher has ended them by itself (fencing). torchrun starts as
soon as enough nodes are in its store, and a node that was only slow then runs in two groups.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast import text
from holdfast.run.nodes.messages import NodeCard, RoundNode, RoundStart

JOIN_TIMEOUT = 600.0
"""torchrun's own; --rdzv-conf join_timeout=S"""
LAST_CALL = 30.0
"""torchrun's own for nodes beyond the least number; --rdzv-conf last_call_timeout=S"""
LAST_CALL_AGAIN = 1.0
"""the same for later rounds: all that are still there have said so, and one that comes back later
is taken in then"""


@dataclass(frozen=True)
class RoundPolicy:
    least: int
    most: int
    expected: tuple[str, ...] = ()
    """the nodes by name, where a hostfile or the scheduler tells"""
    join_timeout: float = JOIN_TIMEOUT
    last_call: float = LAST_CALL
    guarded: bool = True
    """a token, an id or the scheduler keeps launchers of other jobs out"""


@dataclass
class _Launcher:
    """One launcher, from its card to its end."""

    card: NodeCard
    here: bool = True
    ready: bool = False
    round: int = 0
    """the newest that it was started in"""
    ranks_gone: bool = True
    """of that round"""
    left_out: bool = False


class RoundAwaited(NamedTuple):
    present: tuple[str, ...]
    missing: tuple[str, ...]
    """by name where that is known"""
    sentence: str
    too_few: bool = False
    """nodes have to come before it can start"""


class NodesToGiveUp(NamedTuple):
    """They are heard, hold up all others with ranks of the round before, and enough are there
    without them: once they are lost, the fence ends those ranks."""

    nodes: tuple[str, ...]
    why: str


class TooFewNodes(NamedTuple):
    """The join timeout is over."""

    present: tuple[str, ...]
    missing: tuple[str, ...]
    sentence: str


@dataclass
class Rounds:
    """`own` is the node that coordinates, and takes part in every round."""

    policy: RoundPolicy
    own: str
    current: RoundStart | None = None
    """the newest round; after a takeover the one that the coordinator before had started"""
    running: bool = False
    _launchers: dict[str, _Launcher] = field(default_factory=dict)
    _forming_since: float | None = None
    _enough_since: float | None = None
    _here: frozenset[str] = frozenset()

    # --- what happens --------------------------------------------------------------------------

    def joined(self, node: str, card: NodeCard, *, resumed: bool = False) -> None:
        """`resumed`: its connection was gone, and is whole again. Else it is a launcher without
        ranks; one that had this name before has ended its own (run/nodes/link sees to that)."""
        known = self._launchers.get(node)
        if resumed and known is not None and known.here:
            known.card = card
        else:
            self._launchers[node] = _Launcher(card)

    def ready(self, node: str, after: int) -> None:
        """`after`: the round that is over for it. What it said of an earlier one is ignored."""
        launcher = self._launchers.get(node)
        if launcher is not None and launcher.here and launcher.round == after:
            launcher.ready = launcher.ranks_gone = True

    def ranks_gone(self, node: str, after: int) -> None:
        launcher = self._launchers.get(node)
        if launcher is not None and launcher.round == after:
            launcher.ranks_gone = True

    def lost(self, node: str) -> None:
        """Not heard any more, or its launcher ended; it stays lost until it joins again."""
        launcher = self._launchers.get(node)
        if launcher is not None:
            launcher.here = launcher.ready = False

    def fenced(self, node: str) -> None:
        """A node was lost so long ago that its launcher has ended its ranks."""
        launcher = self._launchers.get(node)
        if launcher is not None and not launcher.here:
            launcher.ranks_gone = True

    def leave_out(self, nodes: Iterable[str]) -> None:
        """Of all rounds to come, until another launcher is started there."""
        for node in nodes:
            if node in self._launchers and node != self.own:
                self._launchers[node].left_out = True

    def ended(self) -> None:
        """The round is over by decision; its nodes say so one by one."""
        self.running = False

    # --- what is asked -------------------------------------------------------------------------

    def member(self, node: str) -> bool:
        """Of the newest round."""
        return self.current is not None and any(n.name == node for n in self.current.nodes)

    def waiting(self) -> tuple[str, ...]:
        """Nodes that could be in a round and are in none: spares, or back after a loss."""
        return self._candidates()

    def round_of(self, node: str) -> int:
        """The newest that it was started in; 0 for none."""
        return self._launchers[node].round

    def cards(self) -> dict[str, NodeCard]:
        """Of all launchers that are here."""
        return {
            name: launcher.card
            for name, launcher in self._launchers.items()
            if launcher.here and not launcher.left_out
        }

    def enough_without(self, nodes: Collection[str]) -> bool:
        """Whether those that are here without these could form a round."""
        left = self.cards().keys() - set(nodes)
        return self.own in left and len(left) >= self.policy.least

    def form(
        self, now: float, *, unchecked: Callable[[Sequence[str]], str] = lambda _: ""
    ) -> RoundStart | RoundAwaited | NodesToGiveUp | TooFewNodes:
        """The next round, without the port of its store; call it again while it is awaited.
        `unchecked`: what is still to be looked at before these nodes start together."""
        if self.running:
            raise RuntimeError("a round is running")
        if self._forming_since is None:
            self._forming_since = now
        candidates, came_back = self._candidates(), self._one_came_back()
        if len(candidates) < self.policy.least:
            self._enough_since = None
        elif self._enough_since is None or came_back:
            self._enough_since = now
        settled = not self._unsettled()
        if settled and self.own in candidates and self._may_start(candidates, now):
            chosen = self._chosen(candidates)
            if not (why := unchecked(chosen)):
                return self._start(chosen)
            return RoundAwaited(candidates, self._missing(), why)
        if too_late := self._too_late(candidates, now):
            return too_late
        too_few = settled and self._enough_since is None
        words = self._awaited(candidates, now)
        return RoundAwaited(candidates, self._missing(), words, too_few)

    # --- inside --------------------------------------------------------------------------------

    def _too_late(
        self, candidates: tuple[str, ...], now: float
    ) -> NodesToGiveUp | TooFewNodes | None:
        assert self._forming_since is not None
        timeouts = (now - self._forming_since) / max(self.policy.join_timeout, 1e-9)
        if timeouts < 1:
            return None
        if self._enough_since is not None:
            if busy := self._busy():
                why = f"it did not end its ranks within {self.policy.join_timeout:.0f} s"
                return NodesToGiveUp(busy, why)
            if timeouts < 2 or not self._unsettled():
                return None
        return TooFewNodes(candidates, self._missing(), self._too_few(candidates))

    def _one_came_back(self) -> bool:
        """Since this was last asked, for a later round: in a moment it is ready."""
        before, self._here = self._here, frozenset(self.cards())
        return self.current is not None and not self._here <= before

    def _unsettled(self) -> tuple[str, ...]:
        """Nodes that may have ranks of an earlier round."""
        return tuple(node for node, known in self._launchers.items() if not known.ranks_gone)

    def _busy(self) -> tuple[str, ...]:
        return tuple(node for node in self._unsettled() if self._launchers[node].here)

    def _candidates(self) -> tuple[str, ...]:
        """By node rank."""
        able = [
            node
            for node, launcher in self._launchers.items()
            if launcher.here and launcher.ready and not launcher.left_out
        ]
        return tuple(sorted(able, key=self._rank_order))

    def _rank_order(self, node: str) -> tuple[bool, int, bool, text.NaturalOrder]:
        """What was typed or what the scheduler says; then the coordinator; then by name: neighbours
        in a rack are neighbours in a ring, and the same nodes get the same ranks again."""
        typed = self._launchers[node].card.node_rank
        return typed is None, typed or 0, node != self.own, text.natural_order(node)

    def _may_start(self, candidates: tuple[str, ...], now: float) -> bool:
        if len(candidates) >= self.policy.most:
            return True
        if self._enough_since is None:
            return False
        expected = self.policy.expected
        everybody = bool(expected) and set(expected) <= set(candidates)
        return everybody or now - self._enough_since >= self._last_call()

    def _last_call(self) -> float:
        first = self.current is None
        return self.policy.last_call if first else min(self.policy.last_call, LAST_CALL_AGAIN)

    def _chosen(self, candidates: tuple[str, ...]) -> list[str]:
        """Of too many, the coordinator first, then those of the round before."""
        preferred = sorted(candidates, key=lambda node: (node != self.own, not self.member(node)))
        chosen = set(preferred[: self.policy.most])
        return [node for node in candidates if node in chosen]

    def _start(self, chosen: Sequence[str]) -> RoundStart:
        number = self.current.round + 1 if self.current else 1
        nodes: list[RoundNode] = []
        rank = 0
        for name in chosen:
            launcher = self._launchers[name]
            card = launcher.card
            nodes.append(
                RoundNode(
                    name=name,
                    first_rank=rank,
                    nproc=card.nproc,
                    addresses=card.addresses,
                    role=card.role,
                )
            )
            rank += card.nproc
            launcher.round, launcher.ready, launcher.ranks_gone = number, False, False
        self.running, self._forming_since, self._enough_since = True, None, None
        self.current = RoundStart(
            round=number,
            attempt=number - 1,
            nodes=tuple(nodes),
            store_node=self.own,
            store_port=0,
        )
        return self.current

    # --- in words ------------------------------------------------------------------------------

    def _missing(self) -> tuple[str, ...]:
        """By name: of the list, of the round before, or by node rank."""
        launchers = self._launchers
        here = self.cards()
        out = {node for node, launcher in launchers.items() if launcher.left_out}
        before = tuple(node.name for node in self.current.nodes) if self.current else ()
        absent = [n for n in (self.policy.expected or before) if n not in here and n not in out]
        if absent or len(here) >= self.policy.most:
            return tuple(absent)
        numbers = {launchers[node].card.node_rank for node in here}
        if None in numbers or len(numbers) < len(here):
            return ()
        return tuple(f"node rank {i}" for i in range(self.policy.most) if i not in numbers)

    def _awaited(self, candidates: tuple[str, ...], now: float) -> str:
        unsettled = self._unsettled()
        if busy := self._busy():
            return f"waiting for {text.names(busy)} to end the ranks of the round before"
        if unsettled:
            are = text.plural(unsettled, "is", "are")
            return (
                f"waiting until the ranks of {text.names(unsettled)}, which {are} lost, have ended"
            )
        here = _have_come(candidates, self.policy)
        if self._enough_since is None:
            assert self._forming_since is not None
            left = max(0.0, self._forming_since + self.policy.join_timeout - now)
            return f"{here}; waiting for {self._absent(candidates)}, up to {left:.0f} s more"
        left = max(0.0, self._enough_since + self._last_call() - now)
        return f"{here}, enough to start (--nnodes {_span(self.policy)}): in {left:.0f} s at most"

    def _absent(self, candidates: tuple[str, ...]) -> str:
        if missing := self._missing():
            return text.names(missing)
        count = self.policy.least - len(candidates)
        return f"{count} more"

    def _too_few(self, candidates: tuple[str, ...]) -> str:
        if busy := self._unsettled():
            return (
                f"{text.names(busy)} did not end the ranks of the round before within the join "
                f"timeout of {self.policy.join_timeout:.0f} s"
            )
        return (
            f"{_have_come(candidates, self.policy)} within the join timeout of "
            f"{self.policy.join_timeout:.0f} s; missing: {self._absent(candidates)}"
        )


def _have_come(candidates: tuple[str, ...], policy: RoundPolicy) -> str:
    count = policy.most
    named = f": {text.names(candidates)}" if candidates else ""
    return f"{len(candidates)} of {count} node{'s' * (count > 1)} ready{named}"


def _span(policy: RoundPolicy) -> str:
    same = policy.least == policy.most
    return f"{policy.most}" if same else f"{policy.least}:{policy.most}"
