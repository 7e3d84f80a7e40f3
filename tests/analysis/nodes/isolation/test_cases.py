"""Single cases: few nodes, racks, what is said."""

from __future__ import annotations

import pytest

from holdfast.analysis.nodes.isolation import (
    IsolationState,
    PairOutcome,
    PairResult,
    absorb,
    conclude,
    plan_round,
)
from tests.analysis.nodes.isolation.fleet import Fleet, met, named, names, paired


def link(one: str, other: str) -> frozenset[str]:
    return frozenset((one, other))


def test_one_node_has_no_other_to_be_tested_with() -> None:
    found = Fleet(["a"]).isolate()
    assert [(one.name, one.why) for one in found.undecided] == [
        ("a", "no other node to test it with")
    ]


def test_two_nodes_that_pass_are_cleared_in_one_round() -> None:
    found = Fleet(["a", "b"]).isolate()
    assert (found.cleared, found.rounds) == (("a", "b"), 1)


@pytest.mark.parametrize("faults", [{"bad": {"a"}}, {"links": {link("a", "b")}}])
def test_two_nodes_that_fail_are_both_undecided(faults: dict[str, set[str]]) -> None:
    found = Fleet(["a", "b"], **faults).isolate()  # type: ignore[arg-type]
    assert named(found.undecided) == {"a", "b"}
    assert "no third node" in found.undecided[0].why


@pytest.mark.parametrize("bad", ["a", "b", "c"])
def test_of_three_nodes_the_bad_one_is_named(bad: str) -> None:
    found = Fleet(["a", "b", "c"], bad={bad}).isolate()
    assert named(found.bad) == {bad}
    assert {*found.cleared} == {"a", "b", "c"} - {bad}
    assert found.rounds <= 3


@pytest.mark.parametrize("ends", [("a", "b"), ("a", "c"), ("b", "c")])
def test_of_three_nodes_the_bad_link_is_named(ends: tuple[str, str]) -> None:
    found = Fleet(["a", "b", "c"], links={link(*ends)}).isolate()
    used = paired(found.links)
    # The pair that is never needed is never tested: two passes clear all three.
    assert used <= {link(*ends)}
    assert {*found.cleared} == {"a", "b", "c"}


def test_of_three_nodes_two_bad_ones_leave_all_undecided() -> None:
    found = Fleet(["a", "b", "c"], bad={"a", "b"}).isolate()
    assert named(found.undecided) == {"a", "b", "c"}
    assert "no pair of nodes passes" in found.undecided[0].why


def test_what_is_said_of_a_bad_node_names_who_passes_elsewhere_and_quotes() -> None:
    found = Fleet(["a", "b", "c", "d"], bad={"c"}).isolate()
    (bad,) = found.bad
    assert bad.why == "fails with a and d, each of which passes with others; boom"


def test_a_pair_that_fails_once_is_transient_and_its_ends_are_not_cleared() -> None:
    state = IsolationState(nodes=("a", "b", "c", "d"))
    failed_once = False
    while pairs := plan_round(state):
        results = []
        for first, second in pairs:
            fails = {first, second} == {"a", "c"} and not failed_once
            failed_once |= fails
            outcome = PairOutcome.FAILED if fails else PairOutcome.PASSED
            results.append(PairResult(first=first, second=second, outcome=outcome, speed=1e9))
        state = absorb(state, results)
    found = conclude(state)
    assert failed_once
    assert paired(found.transient) == {link("a", "c")}
    assert {*found.cleared} == {"b", "d"}
    assert (found.bad, found.links, found.undecided) == ((), (), ())
    assert found.rounds == 3


def test_a_link_that_fails_once_and_is_slow_then_is_bad() -> None:
    state = IsolationState(nodes=("a", "b", "c", "d"))
    tests = 0
    while pairs := plan_round(state):
        results = []
        for first, second in pairs:
            faulty = {first, second} == {"a", "c"}
            tests += faulty
            outcome = PairOutcome.FAILED if faulty and tests == 1 else PairOutcome.PASSED
            speed = 1e6 if faulty else 1e9
            results.append(PairResult(first=first, second=second, outcome=outcome, speed=speed))
        state = absorb(state, results)
    found = conclude(state)
    assert paired(found.links) == {link("a", "c")}
    assert "failed and else is slow (1 MB/s at best" in found.links[0].why
    assert (found.bad, found.transient, found.slow_links, found.stragglers) == ((), (), (), ())
    assert found.cleared == ("a", "b", "c", "d")


def test_when_every_pair_fails_it_stops_after_two_rounds() -> None:
    nodes = names(64)
    found = Fleet(nodes, bad={*nodes}).isolate()
    assert found.rounds == 2
    assert named(found.undecided) == {*nodes}
    assert found.bad == ()


def test_speeds_that_differ_for_many_nodes_blame_none() -> None:
    nodes = names(16)
    found = Fleet(nodes, slow={*nodes[:3], *nodes[8:11]}).isolate()
    assert (found.stragglers, found.bad, found.undecided) == ((), (), ())
    assert {*found.cleared} == {*nodes}
    assert any("speeds are not compared" in remark for remark in found.remarks)


def test_where_most_nodes_are_slow_the_few_fast_ones_are_remarked_on() -> None:
    nodes = names(16)
    found = Fleet(nodes, slow={*nodes[:7]}).isolate()
    assert (found.stragglers, found.bad, found.undecided) == ((), (), ())
    assert any("most nodes may be slow" in remark for remark in found.remarks)


# --- racks ---------------------------------------------------------------------------------------


def in_racks(count: int, size: int) -> dict[str, str]:
    return {name: f"r{number // size}" for number, name in enumerate(names(count))}


def test_the_first_round_goes_across_racks() -> None:
    racks = in_racks(16, 4)
    fleet = Fleet(names(16), racks=racks)
    fleet.isolate()
    assert all(len({racks[name] for name in pair}) == 2 for pair in met(fleet, 1))


def test_a_rack_whose_uplink_is_cut_gets_none_of_its_nodes_blamed() -> None:
    fleet = Fleet(names(16), racks=in_racks(16, 4), cut=frozenset({"r1"}))
    found = fleet.isolate()
    assert found.bad == ()
    assert found.undecided == ()
    assert {*found.cleared} == {*fleet.nodes}
    assert any("rack r1 is cut off" in remark for remark in found.remarks)
    inside = {name for name, rack in fleet.racks.items() if rack == "r1"}
    assert all(len(pair & inside) == 1 for pair in paired(found.links))


def test_two_racks_that_do_not_reach_each_other_get_no_node_blamed() -> None:
    fleet = Fleet(names(8), racks=in_racks(8, 4), cut=frozenset({"r0", "r1"}))
    found = fleet.isolate()
    assert found.bad == ()
    assert {*found.cleared} == {*fleet.nodes}
    assert len(found.links) == 4
    (remark,) = found.remarks
    assert "rack r0 and rack r1 pass at home" in remark


def test_a_rack_whose_nodes_are_all_bad_is_named_as_a_whole() -> None:
    racks = in_racks(16, 4)
    fleet = Fleet(names(16), racks=racks, bad={n for n, rack in racks.items() if rack == "r2"})
    found = fleet.isolate()
    assert named(found.bad) == fleet.bad
    assert any("all 4 nodes of rack r2 fail" in remark for remark in found.remarks)


# --- input ---------------------------------------------------------------------------------------


def test_a_result_of_a_stranger_is_refused() -> None:
    state = IsolationState(nodes=("a", "b"))
    stranger = PairResult(first="a", second="x", outcome=PairOutcome.PASSED)
    with pytest.raises(ValueError, match="not among the nodes: x"):
        absorb(state, [stranger])


def test_a_node_is_no_pair() -> None:
    with pytest.raises(ValueError, match="two nodes"):
        PairResult(first="a", second="a", outcome=PairOutcome.PASSED)


def test_a_pair_that_failed_is_not_tested_again_and_again_to_be_timed() -> None:
    """Speeds as they were on a busy machine: c looked slow, and had a left to be timed with."""
    speeds = {link("b", "d"): 452e6, link("a", "b"): 266e6, link("c", "d"): 224e6}
    state = IsolationState(nodes=("a", "b", "c", "d"))
    while pairs := plan_round(state):
        results = [
            PairResult(
                first=first,
                second=second,
                outcome=PairOutcome.FAILED if {first, second} == {"a", "c"} else PairOutcome.PASSED,
                speed=speeds.get(link(first, second), 300e6),
            )
            for first, second in pairs
        ]
        state = absorb(state, results)
    found = conclude(state)
    assert paired(found.links) == {link("a", "c")}
    assert sum(one.pair == link("a", "c") for results in state.rounds for one in results) == 2
    assert found.cleared == ("a", "b", "c", "d")
    assert found.stragglers == ()
