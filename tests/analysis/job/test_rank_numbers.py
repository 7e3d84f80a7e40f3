"""Numbers that make a group are never called a muddle, whoever claims which."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.job import rank_numbers
from holdfast.analysis.scene.scene import RankView
from tests.faults.joiners import joined, joiner, late, starting


@given(st.permutations(range(5)), st.integers(0, 5), st.booleans())
def test_any_permutation_is_fine_also_while_some_are_late(
    numbers: list[int], come: int, own_store: bool
) -> None:
    views = [
        joiner(rank, rank=number, world_size=5, given_world_size=5, own_store=own_store)
        if rank < come
        else late(rank)
        for rank, number in enumerate(numbers)
    ]
    assert rank_numbers.find_conflict(starting(*views)) is None


@st.composite
def claimants(draw: st.DrawFn, given_rank: int) -> RankView:
    claim = {
        "rank": draw(st.integers(-1, 4)),
        "world_size": draw(st.integers(-1, 4)),
        "given_world_size": 4,
        "store": draw(st.sampled_from(["", "a:1", "127.0.0.1:29400", "localhost:29400"])),
        "own_store": draw(st.booleans()),
        "agent_store": draw(st.booleans()),
    }
    make = draw(st.sampled_from([joiner, joined, None]))
    return make(given_rank, **claim) if make else late(given_rank)


@given(st.data())
def test_a_conflict_names_only_ranks_that_claim_other_than_given(data: st.DataObject) -> None:
    scene = starting(*(data.draw(claimants(rank)) for rank in range(4)))
    found = rank_numbers.find_conflict(scene)
    if found is None:
        return
    assert found.problem
    assert {view.rank for view in found.misnumbered} <= {view.rank for view in found.members}
    for view in found.misnumbered:
        claim = view.beat.claim if view.beat else None
        assert claim is not None
        assert (claim.rank, claim.world_size) != (view.rank, 4)


def test_a_long_list_is_cut() -> None:
    said = rank_numbers.describe_claims([joiner(rank, rank=0) for rank in range(6)])
    assert said.startswith("rank 0 (pid 4000) claims to be 0 of 2 and was given 0 of 2, rank 1")
    assert said.endswith("and 2 more")
