"""Which nodes form the next round, and when: a state machine, pure; the clock is passed in.

A round starts when every node of the one before is accounted for: it said that its ranks are gone,
or it was lost so long ago that its launcher has ended them by itself (fencing). torchrun starts as
soon as enough nodes are in its store, and a node that was only slow then runs in two groups.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast import text
from holdfast.run.nodes.messages import NodeCard, RoundNode, RoundStart

FENCE = 4.0
"""seconds after a node was lost in which its launcher may still be ending its ranks"""
JOIN_TIMEOUT = 600.0
"""torchrun's own; --rdzv-conf join_timeout=S"""
LAST_CALL = 30.0
"""torchrun's own for nodes beyond the least number; --rdzv-conf last_call_timeout=S"""
LAST_CALL_AGAIN = 5.0
"""the same for later rounds: who is still there answers at once"""


@dataclass(frozen=True)
class RoundPolicy:
    least: int
    most: int
    expected: tuple[str, ...] = ()
    """the nodes by name, where a hostfile or the scheduler tells"""
    join_timeout: float = JOIN_TIMEOUT
    last_call: float = LAST_CALL


@dataclass
class _Launcher:
    """One launcher, from its card to its end."""

    card: NodeCard
    place: int
    """in the order in which the nodes first came"""
    here: bool = True
    ready: bool = False
    round: int = 0
    """the newest that it was started in"""
    ranks_gone: bool = True
    """of that round"""
    lost_at: float = 0.0
    left_out: bool = False


class RoundAwaited(NamedTuple):
    present: tuple[str, ...]
    missing: tuple[str, ...]
    """by name where that is known"""
    needed: int
    sentence: str


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
    _places: dict[str, int] = field(default_factory=dict)
    _fenced_until: float = 0.0
    _forming_since: float | None = None
    _enough_since: float | None = None

    def __post_init__(self) -> None:
        for node in self.current.nodes if self.current else ():
            self._place(node.name)

    # --- what happens --------------------------------------------------------------------------

    def joined(self, node: str, card: NodeCard, now: float) -> None:
        """A new launcher, or one whose connection was gone and that came back."""
        known = self._launchers.get(node)
        if known is not None and known.card.identity == card.identity:
            known.card, known.here = card, True
            return
        if known is not None and not known.ranks_gone:
            self._fence((now if known.here else known.lost_at) + FENCE)
        self._launchers[node] = _Launcher(card, self._place(node))

    def ready(self, node: str, after: int) -> None:
        """`after`: the round that is over for it. What it said of an earlier one is ignored."""
        launcher = self._launchers.get(node)
        if launcher is not None and launcher.here and launcher.round == after:
            launcher.ready = launcher.ranks_gone = True

    def ranks_gone(self, node: str, after: int) -> None:
        launcher = self._launchers.get(node)
        if launcher is not None and launcher.round == after:
            launcher.ranks_gone = True

    def lost(self, node: str, now: float) -> None:
        """Not heard any more, or its launcher ended. Once: its fencing counts from here."""
        launcher = self._launchers.get(node)
        if launcher is not None and launcher.here:
            launcher.here = launcher.ready = False
            launcher.lost_at = now

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
        return tuple(n for n in self._candidates() if not (self.running and self._runs(n)))

    def enough_without(self, nodes: Collection[str]) -> bool:
        """Whether those that are here without these could form a round."""
        left = [
            name
            for name, launcher in self._launchers.items()
            if launcher.here and not launcher.left_out and name not in nodes
        ]
        return self.own in left and len(left) >= self.policy.least

    def gone(self, node: str, now: float) -> bool:
        """None of its ranks of the newest round can be alive."""
        launcher = self._launchers.get(node)
        return launcher is None or launcher.ranks_gone or self._is_fenced(launcher, now)

    def form(self, now: float) -> RoundStart | RoundAwaited | TooFewNodes:
        """The next round, without the port of its store; call it again while it is awaited."""
        if self.running:
            raise RuntimeError("a round is running")
        if self._forming_since is None:
            self._forming_since = now
        candidates = self._candidates()
        if len(candidates) < self.policy.least:
            self._enough_since = None
        elif self._enough_since is None:
            self._enough_since = now
        settled = now >= self._fenced_until and not self._unsettled(now)
        if settled and self.own in candidates and self._may_start(candidates, now):
            return self._start(candidates)
        too_long = now - self._forming_since >= self.policy.join_timeout
        if too_long and (self._enough_since is None or not settled):
            return TooFewNodes(candidates, self._missing(), self._too_few(candidates, now))
        return RoundAwaited(
            candidates, self._missing(), self.policy.least, self._awaited(candidates, now)
        )

    # --- inside --------------------------------------------------------------------------------

    def _place(self, node: str) -> int:
        return self._places.setdefault(node, len(self._places))

    def _fence(self, until: float) -> None:
        self._fenced_until = max(self._fenced_until, until)

    def _runs(self, node: str) -> bool:
        number = self.current.round if self.current else 0
        return self._launchers[node].round == number > 0

    def _is_fenced(self, launcher: _Launcher, now: float) -> bool:
        return not launcher.here and now >= launcher.lost_at + FENCE

    def _unsettled(self, now: float) -> tuple[str, ...]:
        """Nodes that may have ranks of an earlier round."""
        return tuple(node for node in self._launchers if not self.gone(node, now))

    def _candidates(self) -> tuple[str, ...]:
        """By node rank."""
        able = [
            node
            for node, launcher in self._launchers.items()
            if launcher.here and launcher.ready and not launcher.left_out
        ]
        return tuple(sorted(able, key=self._rank_order))

    def _rank_order(self, node: str) -> tuple[bool, int, bool, int]:
        """What was typed or what the scheduler says; then the coordinator; then as they came."""
        launcher = self._launchers[node]
        typed = launcher.card.node_rank
        return typed is None, typed or 0, node != self.own, launcher.place

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

    def _start(self, candidates: tuple[str, ...]) -> RoundStart:
        """Of too many, the coordinator first, then those of the round before."""
        preferred = sorted(candidates, key=lambda node: (node != self.own, not self.member(node)))
        chosen = set(preferred[: self.policy.most])
        number = self.current.round + 1 if self.current else 1
        nodes: list[RoundNode] = []
        rank = 0
        for name in candidates:
            if name not in chosen:
                continue
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
        here = {n for n, launcher in launchers.items() if launcher.here and not launcher.left_out}
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
        if busy := [node for node in self._unsettled(now) if self._launchers[node].here]:
            return f"waiting for {text.names(busy)} to end the ranks of the round before"
        here = _have_come(candidates, self.policy)
        if self._enough_since is None:
            assert self._forming_since is not None
            left = max(0.0, self._forming_since + self.policy.join_timeout - now)
            return f"{here}; waiting for {self._absent(candidates)}, up to {left:.0f} s more"
        left = max(
            self._enough_since + self._last_call() - now,
            self._fenced_until - now,
            *(self._launchers[node].lost_at + FENCE - now for node in self._unsettled(now)),
            0.0,
        )
        return f"{here}, enough to start (--nnodes {_span(self.policy)}): in {left:.0f} s at most"

    def _absent(self, candidates: tuple[str, ...]) -> str:
        if missing := self._missing():
            return text.names(missing)
        count = self.policy.least - len(candidates)
        return f"{count} more"

    def _too_few(self, candidates: tuple[str, ...], now: float) -> str:
        if busy := self._unsettled(now):
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
