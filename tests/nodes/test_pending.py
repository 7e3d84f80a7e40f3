from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from holdfast.nodes.pending import Pending


@given(st.integers(1, 20), st.lists(st.sampled_from("abc"), max_size=80))
def test_the_bound_holds_and_the_address_with_most_loses_its_oldest(
    most: int, arrivals: list[str]
) -> None:
    pending: Pending[int] = Pending(most)
    waiting: dict[int, str] = {}
    for number, address in enumerate(arrivals):
        waiting[number] = address
        dropped = pending.add(number, address)
        assert (dropped is None) == (len(waiting) <= most)
        if dropped is not None:
            counts = Counter(waiting.values())
            where = waiting[dropped]
            assert counts[where] == max(counts.values())
            assert dropped == min(n for n, address in waiting.items() if address == where)
            del waiting[dropped]
        assert len(pending) == len(waiting) <= most


@given(st.integers(2, 20), st.integers(0, 200))
def test_a_flood_from_one_address_never_drops_a_node_at_another(most: int, flood: int) -> None:
    pending: Pending[str] = Pending(most)
    pending.add("node", "10.0.0.7")
    dropped = [pending.add(f"flood {n}", "10.6.6.6") for n in range(flood)]
    assert "node" not in dropped


def test_what_is_done_makes_room() -> None:
    pending: Pending[int] = Pending(1)
    assert pending.add(1, "a") is None
    pending.done(1)
    pending.done(1)  # dropped meanwhile, or admitted
    assert pending.add(2, "a") is None
    assert pending.add(3, "a") == 2
