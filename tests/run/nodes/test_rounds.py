"""Which nodes form the next round, and when: by table, then whatever order things happen in."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from holdfast.run.nodes.messages import NodeCard, RoundStart
from holdfast.run.nodes.rounds import (
    LAST_CALL,
    LAST_CALL_AGAIN,
    NodesToGiveUp,
    RoundAwaited,
    RoundPolicy,
    Rounds,
    TooFewNodes,
)


def card(name: str, *, nproc: int = 2, node_rank: int | None = None, life: int = 0) -> NodeCard:
    return NodeCard(
        name=name, identity=f"{name}/{life}", nproc=nproc, node_rank=node_rank
    )  # fmt: skip


def come(rounds: Rounds, *nodes: str, nproc: int = 2) -> None:
    for name in nodes:
        rounds.joined(name, card(name, nproc=nproc))
        rounds.ready(name, 0)


def started(rounds: Rounds, now: float) -> RoundStart:
    outcome = rounds.form(now)
    assert isinstance(outcome, RoundStart), outcome
    return outcome


def awaited(rounds: Rounds, now: float) -> RoundAwaited:
    outcome = rounds.form(now)
    assert isinstance(outcome, RoundAwaited), outcome
    return outcome


def names(start: RoundStart) -> list[str]:
    return [node.name for node in start.nodes]


def running(least: int = 2, most: int = 4, *nodes: str) -> Rounds:
    """A job in its first round, on a, b, c, d unless they are named."""
    rounds = Rounds(RoundPolicy(least, most), own="a")
    come(rounds, *(nodes or ("a", "b", "c", "d")))
    started(rounds, 0.0)
    return rounds


def test_all_of_them_start_at_once() -> None:
    rounds = Rounds(RoundPolicy(2, 2), own="a")
    come(rounds, "a")
    assert awaited(rounds, 0.0).present == ("a",)
    rounds.joined("b", card("b", nproc=3))
    awaited(rounds, 1.0)  # joined, not ready
    rounds.ready("b", 0)
    start = started(rounds, 1.1)
    assert (start.round, start.attempt, start.store_node) == (1, 0, "a")
    assert [(n.name, n.first_rank, n.nproc) for n in start.nodes] == [("a", 0, 2), ("b", 2, 3)]


def test_enough_nodes_wait_for_more_until_the_last_call() -> None:
    rounds = Rounds(RoundPolicy(2, 4), own="a")
    come(rounds, "a", "b")
    assert "2 of 4 nodes ready: a and b, enough to start" in awaited(rounds, 0.0).sentence
    come(rounds, "c")
    awaited(rounds, LAST_CALL - 0.1)
    assert names(started(rounds, LAST_CALL)) == ["a", "b", "c"]


def test_a_node_that_comes_back_to_a_later_round_is_waited_for_until_it_is_ready() -> None:
    rounds = running(2, 3, "a", "b", "c")
    rounds.lost("c")
    rounds.ended()
    for name in "ab":
        rounds.ready(name, 1)
    awaited(rounds, 10.0)
    rounds.joined("c", card("c", life=1))
    awaited(rounds, 10.0 + LAST_CALL_AGAIN)
    rounds.ready("c", 0)
    assert names(started(rounds, 10.1 + LAST_CALL_AGAIN)) == ["a", "b", "c"]


def test_a_node_that_cannot_end_its_ranks_does_not_end_the_job_of_enough_others() -> None:
    """It is heard, so no lease is over. Given up, it ends them or is killed, and then others go
    on: never before."""
    rounds = running(2, 3, "a", "b", "c")
    rounds.ended()
    for name in "ab":
        rounds.ready(name, 1)
    assert "waiting for c to end the ranks" in awaited(rounds, 10.0).sentence
    outcome = rounds.form(10.0 + rounds.policy.join_timeout)
    assert isinstance(outcome, NodesToGiveUp)
    assert outcome.nodes == ("c",)
    rounds.lost("c")
    assert "have ended" in awaited(rounds, 12.0 + rounds.policy.join_timeout).sentence
    rounds.fenced("c")
    assert names(started(rounds, 20.0 + rounds.policy.join_timeout)) == ["a", "b"]


def test_nobody_else_is_waited_for_when_the_list_of_nodes_is_complete() -> None:
    rounds = Rounds(RoundPolicy(1, 4, expected=("a", "b")), own="a")
    come(rounds, "a")
    assert awaited(rounds, 0.0).missing == ("b",)
    come(rounds, "b")
    assert names(started(rounds, 0.1)) == ["a", "b"]


def test_node_ranks_are_the_typed_ones_and_stay() -> None:
    rounds = Rounds(RoundPolicy(3, 3), own="a")
    rounds.joined("a", card("a", node_rank=1))
    rounds.joined("b", card("b", node_rank=2))
    rounds.joined("c", card("c", node_rank=0))
    for name in "abc":
        rounds.ready(name, 0)
    assert names(started(rounds, 0.0)) == ["c", "a", "b"]


def test_untyped_nodes_are_numbered_by_name_and_the_coordinator_is_first() -> None:
    rounds = Rounds(RoundPolicy(2, 3), own="c")
    come(rounds, "b", "a", "c")
    assert names(started(rounds, 0.0)) == ["c", "a", "b"]
    rounds.ended()
    rounds.lost("b")
    for name in "ac":
        rounds.ready(name, 1)
    awaited(rounds, 1.0)
    rounds.joined("b", card("b", life=1))  # a new launcher on the same machine
    rounds.ready("b", 0)
    assert names(started(rounds, 2.0)) == ["c", "a", "b"]


def test_a_lost_node_is_waited_for_until_it_has_fenced_itself() -> None:
    rounds = running()
    rounds.lost("b")
    rounds.ended()
    for name in "acd":
        rounds.ready(name, 1)
    awaited(rounds, 100.0)
    told = awaited(rounds, 100.0 + LAST_CALL_AGAIN).sentence
    assert told == "waiting until the ranks of b, which is lost, have ended"
    rounds.fenced("b")
    start = started(rounds, 100.0 + LAST_CALL_AGAIN)
    assert names(start) == ["a", "c", "d"]
    assert [node.first_rank for node in start.nodes] == [0, 2, 4]
    assert (start.round, start.attempt) == (2, 1)


def test_a_node_that_still_ends_its_ranks_is_waited_for_and_named() -> None:
    rounds = running(2, 4)
    rounds.ended()
    for name in "abd":
        rounds.ready(name, 1)
    assert awaited(rounds, 60.0).sentence == (
        "waiting for c to end the ranks of the round before"
    )  # fmt: skip
    rounds.ready("c", 1)
    assert names(started(rounds, 61.0)) == ["a", "b", "c", "d"]


def test_what_a_node_said_of_an_earlier_round_is_ignored() -> None:
    rounds = running(2, 2, "a", "b")
    rounds.ended()
    rounds.ready("a", 1)
    rounds.ready("b", 0)
    awaited(rounds, 1.0)
    rounds.ranks_gone("b", 0)
    awaited(rounds, 1.5)
    rounds.ready("b", 1)
    started(rounds, 2.0)


def test_a_spare_waits_and_the_nodes_of_the_round_before_come_first() -> None:
    rounds = running(2, 2, "a", "b")
    come(rounds, "spare")
    assert rounds.waiting() == ("spare",)
    rounds.ended()
    rounds.ready("a", 1)
    rounds.ready("b", 1)
    assert names(started(rounds, 6.0)) == ["a", "b"]
    rounds.lost("b")
    rounds.ended()
    rounds.ready("a", 2)
    awaited(rounds, 11.0)
    rounds.fenced("b")
    assert names(started(rounds, 12.0)) == ["a", "spare"]


def test_a_node_left_out_comes_back_only_as_another_launcher() -> None:
    rounds = running()
    assert rounds.enough_without(["c"])
    assert rounds.enough_without(["c", "d"])
    assert not rounds.enough_without(["b", "c", "d"])
    assert not rounds.enough_without(["a"])  # the store is there
    rounds.leave_out(["c"])
    rounds.ended()
    for name in "abcd":
        rounds.ready(name, 1)
    awaited(rounds, 100.0)
    assert names(started(rounds, 100.0 + LAST_CALL_AGAIN)) == ["a", "b", "d"]
    rounds.joined("c", card("c", life=1))
    rounds.ready("c", 0)
    assert rounds.waiting() == ("c",)


def test_absentees_are_named_when_the_join_timeout_is_over() -> None:
    rounds = Rounds(RoundPolicy(3, 3, expected=("a", "b", "c"), join_timeout=20.0), own="a")
    come(rounds, "a", "c")
    sentence = awaited(rounds, 5.0).sentence
    assert sentence == "2 of 3 nodes ready: a and c; waiting for b, up to 20 s more"
    outcome = rounds.form(25.0)
    assert isinstance(outcome, TooFewNodes)
    assert outcome.missing == ("b",)
    assert outcome.sentence == (
        "2 of 3 nodes ready: a and c within the join timeout of 20 s; missing: b"
    )


@pytest.mark.parametrize(
    ("ranks", "missing", "said"),
    [
        ((0, 2), ("node rank 1",), "waiting for node rank 1,"),
        ((None, None), (), "waiting for 1 more,"),
    ],
)
def test_who_is_missing_as_far_as_it_is_known(
    ranks: tuple[int | None, int | None], missing: tuple[str, ...], said: str
) -> None:
    rounds = Rounds(RoundPolicy(3, 3), own="a")
    for name, number in zip("ab", ranks, strict=True):
        rounds.joined(name, card(name, node_rank=number))
        rounds.ready(name, 0)
    outcome = awaited(rounds, 0.0)
    assert outcome.missing == missing
    assert said in outcome.sentence


def test_a_node_of_the_round_before_is_missed_by_name() -> None:
    rounds = running(2, 2, "a", "b")
    rounds.lost("b")
    rounds.fenced("b")
    rounds.ended()
    rounds.ready("a", 1)
    assert awaited(rounds, 60.0).missing == ("b",)
    assert "waiting for b, up to 600 s more" in awaited(rounds, 60.0).sentence


def test_ranks_that_do_not_end_are_not_waited_for_without_end() -> None:
    rounds = running(2, 2, "a", "b")
    rounds.ended()
    rounds.ready("a", 1)
    awaited(rounds, 100.0)
    outcome = rounds.form(700.0)
    assert isinstance(outcome, TooFewNodes)
    assert "b did not end the ranks of the round before" in outcome.sentence


def test_rounds_are_counted_on_after_a_takeover() -> None:
    earlier = running(2, 4).current
    assert earlier
    rounds = Rounds(RoundPolicy(2, 4), own="c", current=earlier)
    come(rounds, "d", "c")
    awaited(rounds, 0.0)
    start = started(rounds, LAST_CALL_AGAIN)
    assert (start.round, names(start), start.store_node) == (2, ["c", "d"], "c")


ENDING = 4.0
NODES = ("a", "b", "c", "d", "e")


class RoundsInAnyOrder(RuleBasedStateMachine):
    """A model of five machines: what their launchers do, as far as fencing lets them."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.policy = RoundPolicy(2, 3, join_timeout=60.0)
        self.rounds = Rounds(self.policy, own="a")
        self.life = dict.fromkeys(NODES, 0)
        self.alive: dict[str, int] = {}
        """node -> the round that its ranks may be alive in"""
        self.dies_at: dict[str, float] = {}
        """of lost launchers: when they have ended their ranks at the latest"""
        self.seen_round = dict.fromkeys(NODES, 0)
        self.said_ready: set[str] = set()
        self.here: set[str] = set()

    def _time_passes(self) -> None:
        for node, end in list(self.dies_at.items()):
            if self.now >= end:
                self.alive.pop(node, None)
                del self.dies_at[node]
                self.rounds.fenced(node)

    @rule(seconds=st.sampled_from([0.05, 0.5, 2.0, ENDING, 31.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self._time_passes()

    @initialize()
    def a_job_runs(self) -> None:
        """Rare by chance, and what most of the trouble begins with."""
        for node in NODES[:4]:
            self.join(node, again=False)
            self.ready(node, after=None)
        self.form()
        assert self.rounds.running

    @rule(node=st.sampled_from(NODES), again=st.booleans())
    def join(self, node: str, again: bool) -> None:
        if again and node in self.here:  # its connection broke, and is whole again
            self.rounds.joined(node, card(node, life=self.life[node]), resumed=True)
        elif node not in self.here and node not in self.alive:
            self.life[node] += 1
            self.seen_round[node] = 0
            self.here.add(node)
            self.rounds.joined(node, card(node, life=self.life[node]))

    @rule(node=st.sampled_from(NODES), after=st.none() | st.integers(0, 3))
    def ready(self, node: str, after: int | None) -> None:
        """A launcher says so when its ranks are gone; older messages may come late."""
        if node not in self.here:
            return
        if after is None:
            self.alive.pop(node, None)
            after = self.seen_round[node]
            self.said_ready.add(node)
        elif after >= self.seen_round[node]:
            return
        self.rounds.ready(node, after)

    @rule()
    def everybody_is_ready(self) -> None:
        for node in sorted(self.here):
            self.ready(node, after=None)

    @rule(node=st.sampled_from(NODES[1:]))
    def lose(self, node: str) -> None:
        self.here.discard(node)
        self.said_ready.discard(node)
        self.rounds.lost(node)
        if node in self.alive:
            self.dies_at[node] = self.now + ENDING

    @rule(node=st.sampled_from(NODES[1:]))
    def leave_out(self, node: str) -> None:
        if self.life[node] > 2:  # seldom
            self.rounds.leave_out([node])

    @rule()
    def restart(self) -> None:
        """By decision of the watch; those that are here do as they are told."""
        self.rounds.ended()
        self.everybody_is_ready()
        self.form()

    @rule()
    def form(self) -> None:
        if self.rounds.running:
            self.rounds.ended()
        outcome = self.rounds.form(self.now)
        if isinstance(outcome, NodesToGiveUp):
            assert set(outcome.nodes) <= set(self.alive)
            return
        if not isinstance(outcome, RoundStart):
            assert outcome.sentence
            return
        members = [node.name for node in outcome.nodes]
        assert self.policy.least <= len(members) <= self.policy.most
        assert set(members) <= self.said_ready, "a node that is not ready"
        assert not self.alive, f"ranks of an earlier round: {self.alive}"
        assert "a" in members
        assert len(set(members)) == len(members)
        ranks = [n.first_rank + i for n in outcome.nodes for i in range(n.nproc)]
        assert ranks == list(range(len(ranks)))
        for node in members:
            self.alive[node] = self.seen_round[node] = outcome.round
            self.said_ready.discard(node)

    @invariant()
    def nobody_runs_in_two_rounds(self) -> None:
        assert len(set(self.alive.values())) <= 1

    @invariant()
    def spares_are_in_no_round(self) -> None:
        if self.rounds.running and self.rounds.current:
            assert not set(self.rounds.waiting()) & set(self.alive)


TestRoundsInAnyOrder = RoundsInAnyOrder.TestCase
TestRoundsInAnyOrder.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None
)  # fmt: skip


def test_a_start_travels_as_it_is() -> None:
    start = running().current
    assert start
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(start), type=RoundStart) == start
