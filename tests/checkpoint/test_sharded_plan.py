"""What all ranks hold becomes one index; names that mean several tensors are refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.checkpoint.sharded_index import ShardIndex
from holdfast.checkpoint.sharded_layout import ShardLayout, whole
from holdfast.checkpoint.sharded_plan import (
    WHOLE,
    Grids,
    HeldState,
    HeldTensor,
    RankGroup,
    Replicas,
    merge,
    piece_name,
    pieces_to_write,
)
from holdfast.errors import ConfigError
from tests.checkpoint.test_sharded_layout import layouts


def sharded(name: str, *ranks: int, size: tuple[int, ...] = (4, 3), **more: Any) -> HeldState:
    """A tensor of that name, its rows divided among these ranks."""
    layout = ShardLayout((len(ranks),), ranks, ((0, 1),))
    tensor = HeldTensor(name, more.pop("dtype", "float32"), size, 0)
    return HeldState((layout,), (tensor,), **more)


def plain(*names: str, **more: Any) -> HeldState:
    return HeldState(
        (), tuple(HeldTensor(name, "float32", (1, 2), WHOLE) for name in names), **more
    )


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        (
            [((0, 1), sharded("0.weight", 0, 1), {}), ((2, 3), sharded("0.weight", 2, 3), {})],
            "0.weight is on ranks 0-1, and on ranks 2-3 in another mesh: one name for different",
        ),
        (
            [((0,), sharded("a", 0, 1), {}), ((1,), sharded("a", 0, 1, size=(5, 3)), {})],
            "a is float32 [4, 3] on rank 0, and float32 [5, 3] on rank 1",
        ),
        (
            [((0,), sharded("a", 0, 1), {}), ((1,), HeldState(), {})],
            "a is divided among ranks 0-1, but rank 1 did not describe it",
        ),
        (
            [((0,), plain("a"), {"a": (1.0, 2.0)}), ((1,), plain("a", "b"), {"a": (2.0, 1.0)})],
            "a is a plain tensor with other values on rank 0 than on rank 1",
        ),
        (
            [((0,), plain(structure={"m": "x"}), {}), ((1,), plain("b", structure={"m": "y"}), {})],
            "m differs between ranks: x, and y on rank 1",
        ),
        (
            [((0,), sharded("a", 0), {}), ((1,), plain("a"), {})],
            "a is float32 [4, 3] on rank 0, and float32 [1, 2] on rank 1",
        ),
    ],
)
def test_one_name_for_several_tensors_is_refused(groups: list[Any], words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        merge([RankGroup(*group) for group in groups])
    assert words in str(raised.value)
    assert "per_rank" in str(raised.value)


FIRST, SECOND = sharded("w", 0, 2), sharded("w", 1, 3)


@pytest.mark.parametrize(
    ("samples", "good"),
    [
        (((1.0, -2.0, 0.5), (1.0, -2.0, 0.5)), True),
        (((1.0, -2.0, 0.5), (1.01, -1.99, 0.5)), True),
        (((1.0, -2.0, 0.5), (-1.5, 0.3, 0.5)), False),
        ((None, (1.0,)), False),
    ],
)
def test_a_mesh_for_each_tensor_parallel_rank_holds_replicas_if_the_values_say_so(
    samples: tuple[Any, Any], good: bool
) -> None:
    """FSDP2 beside tensor parallelism: ranks 0,2 and 1,3 each divide what has no tensor parallel
    dimension."""
    one, other = ({"w": each} if each else {} for each in samples)
    groups = [RankGroup((0, 2), FIRST, one), RankGroup((1, 3), SECOND, other)]
    if not good:
        with pytest.raises(ConfigError, match="one name for different tensors"):
            merge(groups)
        return
    replicas: Replicas = set()
    index = merge(groups, replicas).index
    assert index.layouts == (ShardLayout((2, 2), (0, 2, 1, 3), (None, (0, 1))),)
    # Known from now on: when a new plan is needed, the values are not sent again.
    merge([RankGroup((0, 2), FIRST), RankGroup((1, 3), SECOND)], replicas)


def test_vectors_are_compared_only_where_there_is_nothing_else() -> None:
    layouts_of = [((0, 2), FIRST.layouts), ((1, 3), SECOND.layouts)]
    tensors = tuple(HeldTensor(name, "float32", (4,), 0) for name in "abc")
    same, noise, other = (1.0, 1.0), (0.01, -0.01), (-0.01, 0.01)
    plan = merge(
        [
            RankGroup(ranks, HeldState(layouts, tensors), {"a": same, "b": same, "c": values})
            for (ranks, layouts), values in zip(layouts_of, (noise, other), strict=True)
        ]
    )
    assert list(plan.index) == ["a", "b", "c"], "noise in c is no second tensor of its name"


def test_stages_of_a_pipeline_have_their_own_names_and_share_a_plain_tensor() -> None:
    first = HeldState(
        sharded("", 0, 1).layouts,
        (HeldTensor("one", "float32", (4, 3), 0), HeldTensor("step", "float32", (), WHOLE)),
        {"one": "x"},
    )
    second = HeldState(
        sharded("", 2, 3).layouts,
        (HeldTensor("step", "float32", (), WHOLE), HeldTensor("two", "float32", (4, 3), 0)),
        {"two": "y"},
    )
    plan = merge([RankGroup((0, 1), first), RankGroup((2, 3), second)])
    assert set(plan.index) == {"one", "two", "step"}
    assert plan.structure == {"one": "x", "two": "y"}
    wanted = {
        name: sorted(each.rank for each in plan.index.overlaps(name, whole(plan.index[name].size)))
        for name in plan.index
    }
    assert (wanted["one"], wanted["two"]) == ([0, 1], [2, 3])
    [writer] = wanted["step"]
    held = [first, first, second, second]
    holders = [plan.holders[0]] * 2 + [plan.holders[1]] * 2
    wrote = [
        [name for name, _, _ in pieces_to_write(rank, held[rank], holders[rank], Grids())]
        for rank in range(4)
    ]
    assert [("step" in names) for names in wrote] == [rank == writer for rank in range(4)]


@st.composite
def jobs(draw: Any) -> list[RankGroup]:
    """Groups of ranks, each with meshes over its own ranks, and plain tensors that some share."""
    groups, first = [], 0
    shared = draw(st.lists(st.sampled_from("xyz"), unique=True))
    for number in range(draw(st.integers(1, 3))):
        size = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=2)))
        layout = draw(layouts(len(size)))
        lowest = min(layout.ranks)
        ranks = tuple(rank - lowest + first for rank in layout.ranks)
        layout = msgspec.structs.replace(layout, ranks=ranks)
        tensors = [HeldTensor(f"w{number}.{i}", "float32", size, 0) for i in range(2)]
        names = shared if draw(st.booleans()) else [f"own{number}"]
        tensors += [HeldTensor(name, "float32", (5,), WHOLE) for name in names]
        groups.append(RankGroup(tuple(sorted(ranks)), HeldState((layout,), tuple(tensors))))
        first += len(ranks)
    return groups


@given(jobs())
def test_the_index_says_of_every_element_which_one_rank_has_written_it(
    groups: list[RankGroup],
) -> None:
    plan = merge(groups)
    written = [
        (rank, name, piece.offsets, piece.sizes)
        for group, holders in zip(groups, plan.holders, strict=True)
        for rank in group.ranks
        for name, _, piece in pieces_to_write(rank, group.held, holders, Grids())
    ]
    index = ShardIndex.from_node(msgspec.json.decode(plan.index.to_json()))
    expected = {
        (each.rank, name, each.offsets, each.sizes)
        for name, saved in index.items()
        for each in index.overlaps(name, whole(saved.size))
    }
    assert sorted(written) == sorted(expected)


def test_a_piece_has_its_offset_in_its_name_unless_it_is_whole() -> None:
    assert piece_name("model.fc.weight", (4, 3), (2, 0), (2, 3)) == "model.fc.weight[2,0]"
    assert piece_name("model.fc.weight", (4, 3), (0, 0), (4, 3)) == "model.fc.weight"
    assert piece_name("step", (), (), ()) == "step"


class Counted(str):
    """A name that counts how often it is looked up."""

    __slots__ = ()
    lookups = 0

    def __hash__(self) -> int:
        Counted.lookups += 1
        return super().__hash__()

    __eq__ = str.__eq__


def test_the_work_of_rank_0_grows_with_the_tensors_and_not_with_the_ranks() -> None:
    def work(ranks: int, tensors: int) -> int:
        layout = ShardLayout((ranks,), tuple(range(ranks)), ((0, 1),))
        names = [Counted(f"w{i}") for i in range(tensors)]
        held = HeldState(
            (layout,), tuple(HeldTensor(name, "float32", (ranks, 3), 0) for name in names)
        )
        Counted.lookups = 0
        merge([RankGroup(layout.ranks, held)])
        return Counted.lookups

    assert work(64, 100) == work(1024, 100)
    assert work(64, 400) <= 4 * work(64, 100) + 10
