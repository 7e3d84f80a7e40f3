from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.machine import RdmaPort, rdma_health
from holdfast.analysis.nodes import rdma
from tests.faults.machines import a_plan
from tests.faults.made_nodes import a_node, replace
from tests.faults.made_rdma import DOWN, a_card, an_ib_port, in_subnet, rails

STATES = st.sampled_from(
    [{}, DOWN, {"state": "INIT"}, {**DOWN, "physical_state": "Disabled"}, {"state": "ARMED"}]
)
BOARDS = st.sampled_from(["MT_0000000838", "MT_0000001069", ""])
RATES = st.sampled_from([100.0, 200.0, 400.0, None])
MACHINES = st.lists(st.tuples(STATES, BOARDS, st.booleans(), RATES), max_size=18)


def made(rows: list[tuple[dict[str, Any], str, bool, float | None]]) -> tuple[Any, Any]:
    ports = [an_ib_port(f"mlx5_{n}", **{**row[0], "rate": row[3]}) for n, row in enumerate(rows)]
    cards = {
        f"mlx5_{n}": a_card(f"mlx5_{n}", board=row[1], virtual_function=row[2])
        for n, row in enumerate(rows)
    }
    return ports, cards


@given(MACHINES, st.sampled_from([0, 1, 4, 8]))
def test_only_a_minority_of_a_model_is_missed(rows: Any, gpus: int) -> None:
    ports, cards = made(rows)
    for group in rdma_health.down_among_others(ports, cards, gpus):
        board = cards[group.ports[0].device].board
        alike = [
            port
            for port in ports
            if cards[port.device].board == board
            and not cards[port.device].virtual_function
            and port.physical_state != "Disabled"
        ]
        assert len(group.ports) * 2 < len(alike)
        for port in group.ports:
            assert port.state == "DOWN"
            assert port.physical_state != "Disabled"
            assert not cards[port.device].virtual_function
            assert cards[port.device].board


@given(MACHINES)
def test_the_order_of_ports_does_not_matter(rows: Any) -> None:
    ports, cards = made(rows)

    def missed(listed: list[RdmaPort]) -> set[str]:
        groups = rdma_health.down_among_others(listed, cards, 8)
        slow = rdma_health.slower_than_their_like(listed, cards)
        return {p.name for g in groups for p in g.ports} | {one.port.name for one in slow}

    assert missed(ports) == missed(ports[::-1])


@given(MACHINES)
def test_a_slow_port_has_faster_ones_of_its_model(rows: Any) -> None:
    ports, cards = made(rows)
    for slow in rdma_health.slower_than_their_like(ports, cards):
        assert slow.port.rate is not None
        assert slow.usual.rate is not None
        assert slow.port.rate < slow.usual.rate
        assert cards[slow.port.device].board == cards[slow.usual.device].board


SETUPS = st.sampled_from(
    [
        rails(8),
        rails(8, {3: DOWN}),
        rails(4, active_mtu={1: 2048}),
        rails(8, {n: in_subnet("fec0:0000:0000:0001") for n in range(8)}),
    ]
)


@given(st.lists(SETUPS, min_size=2, max_size=6))
def test_nodes_differ_exactly_where_their_values_do(setups: list[dict[str, Any]]) -> None:
    plan = a_plan(max_nodes=len(setups))
    using = {}
    for number, setup in enumerate(setups):
        node = a_node(number, len(setups), plan)
        seen = rdma.of_node(replace(node, facts=replace(node.facts, **setup)))
        assert isinstance(seen, rdma.RdmaOfNode)
        using[node.name] = seen
    found = rdma.compare(using)
    assert bool(found) == (len({one._replace(rates="") for one in using.values()}) > 1)
    for one in found:
        usual = one.unequal.usual
        assert all(one.unequal.values[name] != usual for name in one.unequal.odd)
