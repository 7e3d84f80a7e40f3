from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.machine import Unread
from holdfast.analysis.nodes.loss import chance, directed
from tests.faults.made_nodes import loss, some_nodes


@pytest.mark.parametrize(
    ("lost", "sent", "expected"), [(0, 40, 1.0), (1, 40, 0.331), (4, 40, 7.2e-4), (12, 40, 0.0)]
)
def test_the_tail_of_the_binomial(lost: int, sent: int, expected: float) -> None:
    assert chance(lost, sent) == pytest.approx(expected, rel=0.05, abs=1e-9)


@given(st.integers(0, 200), st.integers(1, 200))
def test_more_loss_is_never_more_likely(lost: int, sent: int) -> None:
    assert 0.0 <= chance(lost + 1, sent) <= chance(lost, sent) <= 1.0


@given(st.integers(2, 40), st.data())
def test_a_datagram_lost_here_and_there_is_no_finding(count: int, data: st.DataObject) -> None:
    """One of 40 on any number of paths."""
    facts = some_nodes(min(count, 6))
    assert not isinstance(facts.losses, Unread)
    for one in data.draw(st.sets(st.sampled_from(facts.losses), max_size=4)):
        facts = loss(facts, one.source, one.target.node, arrived=39, answered=39)
    assert not isinstance(facts.losses, Unread)
    assert directed(facts.losses).beyond_chance() == {}


def test_answers_count_for_the_way_back() -> None:
    facts = loss(some_nodes(2), "node-a", "node-b", arrived=40, answered=30)
    assert not isinstance(facts.losses, Unread)
    found = directed(facts.losses).by_pair
    assert found["node-a", "node-b"].lost == 0
    assert found["node-b", "node-a"].lost == 10
    assert found["node-b", "node-a"].sent == 80
