from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.machine import Unread
from holdfast.analysis.nodes.differences import compare, of_each
from tests.faults.made_nodes import on_node, some_nodes


def test_the_odd_one_out_is_named() -> None:
    found = compare({"a": "2.13", "b": "2.13", "c": "2.12"})
    assert found is not None
    assert found.odd == ("c",)
    assert found.listed == "2.13 on a and b, 2.12 on c"


def test_without_a_majority_none_is_odd() -> None:
    for values in ({"a": "1", "b": "2"}, {"a": "1", "b": "1", "c": "2", "d": "2"}):
        found = compare(values)
        assert found is not None
        assert found.odd == ()


@given(st.dictionaries(st.text("abcdef", min_size=1, max_size=3), st.sampled_from("xyz")))
def test_odd_nodes_are_fewer_than_the_others(values: dict[str, str]) -> None:
    found = compare(values)
    if found is None:
        assert len(set(values.values())) < 2
    else:
        assert len(found.odd) * 2 < len(values)
        assert all(values[node] != found.usual for node in found.odd)


def test_nodes_that_could_not_look_are_listed_apart() -> None:
    facts = on_node(some_nodes(3), "node-b", software=Unread(why="no python"))
    answers, gaps = of_each(facts, lambda node: node.facts.software)
    assert sorted(answers) == ["node-a", "node-c"]
    assert [(gap.node, gap.why) for gap in gaps] == [("node-b", "no python")]
