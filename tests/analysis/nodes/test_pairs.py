from __future__ import annotations

from holdfast.analysis.machine import Unread, known
from holdfast.analysis.nodes import Absence, Outcome, PathLoss, PortKind, StoreBelief
from holdfast.analysis.nodes.pairs import PairState, PathSign, pair_states, round_trips
from tests.faults.made_nodes import on_node, path, probes, replace, sizes, some_nodes, untried

AB = ("node-a", "node-b")
BA = ("node-b", "node-a")


def test_healthy_paths_are_ok_in_both_directions() -> None:
    assert set(pair_states(some_nodes(3)).values()) == {PairState(PathSign.OK, partly=False)}


def test_a_path_has_a_direction() -> None:
    states = pair_states(path(some_nodes(3), *AB))

    assert states[AB] == PairState(PathSign.DROPPED, partly=False)
    assert states[BA].sign is PathSign.OK


def test_one_port_of_two_is_a_part() -> None:
    states = pair_states(path(some_nodes(2), *AB, Outcome.REJECTED, PortKind.MASTER))

    assert states[AB] == PairState(PathSign.REJECTED, partly=True)


def test_what_was_not_tried_is_not_ok() -> None:
    facts = untried(some_nodes(3), *AB)

    assert pair_states(facts)[AB].sign is PathSign.UNTRIED
    nothing = replace(facts, reach=Unread(why="no listener could be opened"))
    assert {state.sign for state in pair_states(nothing).values()} == {PathSign.UNTRIED}


def test_an_absent_node_has_a_row_and_a_column() -> None:
    facts = replace(some_nodes(2), absent=(Absence(name="node-z", why="did not join"),))

    assert pair_states(facts)["node-a", "node-z"].sign is PathSign.UNTRIED
    assert pair_states(facts)["node-z", "node-a"].sign is PathSign.UNTRIED


def test_a_node_lost_during_the_check_is_there_once() -> None:
    facts = replace(some_nodes(2), absent=(Absence(name="node-b", why="lost"),))

    assert set(pair_states(facts)) == {AB, BA}


def test_sizes_and_loss_show_where_connects_pass() -> None:
    small_only = probes(1500, mtu=9000)
    facts = sizes(some_nodes(3, mtu=9000), *AB, datagrams=small_only)
    lossy = replace(facts, losses=tuple(_thirty_percent(one) for one in known(facts.losses)))

    assert pair_states(facts)[AB].sign is PathSign.LARGE_LOST
    assert pair_states(facts)[BA].sign is PathSign.OK
    assert pair_states(lossy)["node-c", "node-a"].sign is PathSign.LOSSY


def _thirty_percent(one: PathLoss) -> PathLoss:
    return replace(one, arrived=28, answered=28) if one.source == "node-c" else one


def test_the_master_port_matters_where_the_store_is() -> None:
    blocked = path(some_nodes(3), *AB, Outcome.DROPPED, PortKind.MASTER)
    elsewhere = on_node(blocked, "node-a", store=_belief(hosts_it=True))

    assert pair_states(blocked)[AB].sign is PathSign.DROPPED, "the store may be anywhere"
    assert pair_states(elsewhere)[AB].sign is PathSign.OK
    assert pair_states(on_node(blocked, "node-b", store=_belief(hosts_it=True)))[AB].partly


def _belief(*, hosts_it: bool) -> StoreBelief:
    return StoreBelief(endpoint="node-a", hosts_it=hosts_it, why="")


def test_round_trips_are_those_of_the_best_address() -> None:
    facts = some_nodes(2)
    slow = replace(known(facts.losses)[0], median_seconds=0.2)
    trips = round_trips(replace(facts, losses=(slow, *known(facts.losses))))

    assert trips == {AB: 0.0003, BA: 0.0003}
