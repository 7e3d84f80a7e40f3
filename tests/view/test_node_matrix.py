from __future__ import annotations

import msgspec

from holdfast.analysis.nodes import NodesFacts, Outcome, PortKind
from holdfast.view import node_matrix
from tests.faults.made_nodes import name_of, path, some_nodes


def lines(facts: NodesFacts) -> list[str]:
    return node_matrix.draw(facts).split("\n")


def test_rows_are_sources_and_columns_are_targets() -> None:
    drawn = lines(path(some_nodes(3), "node-a", "node-c"))

    assert drawn[2].split() == ["1", "node-a", "-", ".", "D"]
    assert drawn[4].split() == ["3", "node-c", ".", ".", "-"]
    assert drawn[5] == ". ok  D dropped"


def test_a_small_letter_says_that_some_ports_pass() -> None:
    drawn = lines(path(some_nodes(2), "node-a", "node-b", Outcome.REFUSED, PortKind.MASTER))

    assert drawn[2].split() == ["1", "node-a", "-", "f"]
    assert drawn[-1] == ". ok  F refused  (small letter: on some ports or interfaces)"


def test_one_node_needs_no_matrix() -> None:
    assert node_matrix.draw(some_nodes(1)) == ""


def test_above_sixteen_nodes_racks_are_drawn() -> None:
    facts = in_racks(some_nodes(20), size=5)
    drawn = lines(path(path(facts, name_of(0), name_of(7)), name_of(1), name_of(7)))

    assert drawn[0].startswith("from row to column, folded")
    assert [line.split()[1] for line in drawn[2:6]] == ["rack0", "rack1", "rack2", "rack3"]
    assert drawn[2].split()[2:] == [".", "D2", ".", "."]


def test_without_racks_many_nodes_are_drawn_in_runs() -> None:
    drawn = lines(path(some_nodes(40), name_of(39), name_of(0)))

    assert len(drawn) <= 2 + node_matrix.LARGEST + 1
    assert "node-a … node-c" in drawn[2]
    assert drawn[-2].split()[-14] == "D1"


def in_racks(facts: NodesFacts, *, size: int) -> NodesFacts:
    racked = (
        msgspec.structs.replace(node, rack=f"rack{number // size}")
        for number, node in enumerate(facts.nodes)
    )
    return msgspec.structs.replace(facts, nodes=tuple(racked))
