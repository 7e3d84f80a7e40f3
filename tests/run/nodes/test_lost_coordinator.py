"""What a launcher says that has lost its coordinator, and whom it asks before it says it."""

from __future__ import annotations

import socket
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.scene.node_view import Farewell
from holdfast.drill.lab import Lab
from holdfast.run.nodes import lost_coordinator
from holdfast.run.nodes.link.interface import CoordinatorLost
from holdfast.run.nodes.neighbours import MOST_ASKED, Neighbours

SILENT = CoordinatorLost("silent", "nothing from the coordinator for 7.1 s", 7.1)
CLOSED = CoordinatorLost("closed", "Connection reset by peer", 2.0)
NOT_HEARD = CoordinatorLost("silent", "the coordinator has not heard this node for 7 s", 0.2)


@pytest.mark.parametrize(
    ("lost", "answers", "slug", "saying"),
    [
        (SILENT, {"a": False, "b": True}, "store-host-lost", "it is down, hangs, or is cut off"),
        (SILENT, {}, "store-host-lost", "nothing was heard from it for 7.1 s"),
        (SILENT, {"a": True, "b": True}, "store-host-lost", "the machine answers and its launcher"),
        (CLOSED, {"a": True}, "store-host-lost", "killed or exited; the machine still answers"),
        (
            SILENT,
            {"a": False, "b": False, "c": True},
            "network-partition",
            "d and c reach each other, but not a and b",
        ),
        (
            SILENT,
            {"a": None, "b": False, "c": False},
            "network-partition",
            "d reaches no other node (a, b and c)",
        ),
        # Machines that never answer such a question are no sign of a split.
        (SILENT, {"a": None, "b": None, "c": None}, "store-host-lost", "was lost"),
        (NOT_HEARD, {"a": True}, "peer-unreachable", "node d → node a: what d sends does not"),
    ],
)
def test_what_it_says(
    lost: CoordinatorLost, answers: dict[str, bool | None], slug: str, saying: str
) -> None:
    found = lost_coordinator.judge(lost, own="d", coordinator="a", answers=answers)
    assert found.slug == slug
    assert saying in found.reason
    assert found.certain
    assert found.fatal
    assert "a" in found.about_hosts


@given(
    farewell=st.sampled_from(["closed", "silent", "left"]),
    silent=st.floats(0, 1e6),
    answers=st.dictionaries(st.sampled_from("abc"), st.sampled_from([True, False, None])),
)
def test_it_always_says_something_and_never_accuses_one_that_answers(
    farewell: Farewell, silent: float, answers: dict[str, bool | None]
) -> None:
    lost = CoordinatorLost(farewell, "", silent)
    found = lost_coordinator.judge(lost, own="d", coordinator="a", answers=answers)
    assert found.reason
    assert found.evidence
    assert {node for node in found.hosts if answers.get(node)} <= {"a"}


def test_a_machine_that_refuses_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    asked = Neighbours({"b": ["127.0.0.1"], "c": []}, port)
    asked.ask_while_well(but="c")
    assert asked.answers(20.0) == {"b": False, "c": None}  # not asked since
    asked.ask()
    assert asked.answers(20.0) == {"b": True, "c": None}


@pytest.mark.lab
@pytest.mark.xdist_group("neighbours")
def test_silence_counts_where_the_machine_answered_before(lab: Lab) -> None:
    a, b, c = lab.hosts(3)
    others = {"b": [b.address], "c": [c.address]}
    with a.inside():  # a thread is where its maker is
        asked = Neighbours(others, 29400)
        c.firewall("tcp dport 29400 drop")
        asked.ask_while_well(but="")
        asked.answers(20.0)
        asked.ask()
        assert asked.answers(20.0) == {"b": True, "c": None}
        lab.link(a, b).drop()
        asked.ask()
        began = time.monotonic()
        assert asked.answers(20.0) == {"b": False, "c": None}
        assert time.monotonic() - began < 10.0


def test_of_many_nodes_a_few_are_asked_and_the_coordinator_always() -> None:
    asked = Neighbours({f"n{number}": [] for number in range(1000)}, 29400)
    asked.ask_while_well(but="n77")
    answers = asked.answers(30)
    assert "n77" in answers
    assert len(answers) <= MOST_ASKED + 1
