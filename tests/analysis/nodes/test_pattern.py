from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.nodes.islands import is_partition, islands
from holdfast.analysis.nodes.pattern import Pair, PathGroup, Shape, listed, smallest

NAMES = "abcdefgh"


def everything(count: int) -> list[Pair]:
    names = NAMES[:count]
    return [(a, b) for a in names for b in names if a != b]


@st.composite
def matrices(draw: st.DrawFn) -> tuple[set[Pair], list[Pair]]:
    """Failed and tested paths; some were not tested."""
    tested = draw(st.sets(st.sampled_from(everything(draw(st.integers(2, 6)))), min_size=1))
    failed = draw(st.sets(st.sampled_from(sorted(tested))))
    return failed, sorted(tested)


def shapes(groups: list[PathGroup]) -> list[tuple[Shape, str]]:
    return [(g.shape, "".join(g.nodes)) for g in groups]


def test_a_row_a_column_both_and_a_single_path() -> None:
    tested = everything(4)
    assert shapes(smallest([("a", b) for b in "bcd"], tested)) == [(Shape.OUTBOUND, "a")]
    assert shapes(smallest([(b, "a") for b in "bcd"], tested)) == [(Shape.INBOUND, "a")]
    assert shapes(smallest([p for p in tested if "a" in p], tested)) == [(Shape.NODE, "a")]
    assert shapes(smallest([("a", "b")], tested)) == [(Shape.PATHS, "")]
    assert shapes(smallest(tested, tested)) == [(Shape.EVERYWHERE, "abcd")]
    assert smallest([], tested) == []


def test_with_two_nodes_neither_is_accused() -> None:
    assert shapes(smallest(everything(2), everything(2))) == [(Shape.PATHS, "")]


def test_a_dead_node_does_not_make_the_others_look_bad() -> None:
    """Of three nodes c is cut off, and a does not reach b: that is a path, not a's outbound."""
    failed = [p for p in everything(3) if "c" in p] + [("a", "b")]
    assert shapes(smallest(failed, everything(3))) == [(Shape.NODE, "c"), (Shape.PATHS, "")]


def test_paths_are_listed_once_where_both_ways_failed() -> None:
    assert listed([("a", "b"), ("b", "a"), ("a", "c")]) == "a ↔ b, a → c"
    assert listed([("a", b) for b in "bcdefgh"]) == "a → b, a → c, a → d and 4 more"


@given(matrices())
def test_every_failed_path_is_told_and_no_path_that_passed(
    case: tuple[set[Pair], list[Pair]],
) -> None:
    failed, tested = case
    groups = smallest(failed, tested)
    assert {pair for group in groups for pair in group.pairs} == failed


@given(matrices())
def test_a_node_whose_row_and_column_are_clean_is_never_named(
    case: tuple[set[Pair], list[Pair]],
) -> None:
    failed, tested = case
    touched = {name for pair in failed for name in pair}
    for group in smallest(failed, tested):
        assert set(group.nodes) <= touched
        assert {name for pair in group.pairs for name in pair} <= touched


@given(matrices(), st.permutations(NAMES))
def test_other_names_change_nothing_but_names(
    case: tuple[set[Pair], list[Pair]], order: list[str]
) -> None:
    failed, tested = case
    other = dict(zip(NAMES, order, strict=True))

    def rename(pair: Pair) -> Pair:
        return other[pair[0]], other[pair[1]]

    there = smallest({rename(p) for p in failed}, [rename(p) for p in reversed(tested)])
    here = smallest(failed, tested)
    assert [(g.shape, {other[n] for n in g.nodes}, {rename(p) for p in g.pairs}) for g in here] == [
        (g.shape, set(g.nodes), set(g.pairs)) for g in there
    ]


@given(matrices())
def test_islands_are_a_division_and_only_proven_ones(case: tuple[set[Pair], list[Pair]]) -> None:
    failed, tested = case
    nodes = sorted({name for pair in tested for name in pair})
    found = islands(nodes, failed, tested)
    assert sorted(name for island in found for name in island) == nodes
    home = {name: number for number, island in enumerate(found) for name in island}
    for a in nodes:
        for b in nodes:
            if home[a] != home[b]:
                assert (a, b) in failed
                assert (b, a) in failed


def test_one_node_alone_is_no_partition() -> None:
    assert not is_partition([("a", "b", "c"), ("d",)])
    assert not is_partition([("a",), ("b",)])
    assert is_partition([("a", "b"), ("c", "d"), ("e",)])
