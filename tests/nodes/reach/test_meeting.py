"""Which process coordinates, where it listens, and which port all nodes compute."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ConfigError
from holdfast.nodes.reach.meeting import (
    MeetingPlan,
    MeetingRole,
    bind_addresses,
    join_endpoint,
    meeting_port,
    role,
)

PLAN = MeetingPlan(
    nodes=2,
    nodes_source="--nnodes",
    port=4000,
    port_source="--join",
    host="node-a",
    host_source="--join",
)


@pytest.mark.parametrize(
    ("resolved", "own", "expected", "why"),
    [
        (
            ["10.0.0.1"],
            ["127.0.0.1", "10.0.0.1"],
            MeetingRole.COORDINATE_IF_FREE,
            "is this node (10.0.0.1)",
        ),
        (["10.0.0.1"], ["127.0.0.1", "10.0.0.2"], MeetingRole.JOIN, "is another node (10.0.0.1)"),
        # Debian gives a machine's own name to 127.0.1.1, which no interface has
        (["127.0.1.1"], ["127.0.0.1", "10.0.0.2"], MeetingRole.COORDINATE_IF_FREE, "this node"),
        (["fd00::1"], ["fd00::1"], MeetingRole.COORDINATE_IF_FREE, "is this node (fd00::1)"),
        ([], ["10.0.0.2"], MeetingRole.JOIN, "does not resolve here"),
    ],
)
def test_the_node_that_has_the_address_coordinates(
    resolved: list[str], own: list[str], expected: MeetingRole, why: str
) -> None:
    decided, reason = role(PLAN, resolved=resolved, own=own)
    assert decided is expected
    assert reason.startswith("node-a (--join)")
    assert why in reason


@pytest.mark.parametrize(
    ("index", "expected"), [(0, MeetingRole.COORDINATE), (1, MeetingRole.JOIN)]
)
def test_node_0_coordinates_where_nodes_are_numbered(index: int, expected: MeetingRole) -> None:
    plan = MeetingPlan(
        nodes=2,
        nodes_source="SLURM_STEP_NUM_NODES",
        port=4000,
        port_source="SLURM_JOB_ID",
        host="n1",
        index=index,
        index_source="SLURM_NODEID",
        by_address=False,
    )
    decided, reason = role(plan, resolved=["10.0.0.1"], own=["10.0.0.1"])
    assert decided is expected
    assert reason == f"this is node {index} (SLURM_NODEID)"


def test_where_the_coordinator_listens() -> None:
    assert bind_addresses("10.0.0.1") == ("10.0.0.1",)
    assert bind_addresses("node-a") == ("0.0.0.0", "::")


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("node-a:4000", ("node-a", 4000)),
        ("10.0.0.1:1", ("10.0.0.1", 1)),
        ("[fd00::1]:4000", ("fd00::1", 4000)),
    ],
)
def test_join_names_an_endpoint(text: str, endpoint: tuple[str, int]) -> None:
    assert join_endpoint(text) == endpoint


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "a:",
        ":4000",
        "a:x",
        "a:0",
        "a:65536",
        "a b:1",
        "fd00::1:4000",
        "[a:b]:1",
        "a:-1",
        "0.0.0.0:1",
        "[::]:1",
    ],
)
def test_what_is_no_endpoint_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--join"):
        join_endpoint(text)


@given(
    st.one_of(st.none(), st.integers(1, 65535)), st.one_of(st.none(), st.integers(0, 999_999_999))
)
def test_the_port_is_not_the_stores_and_needs_no_root(store: int | None, job: int | None) -> None:
    port = meeting_port(store, job)
    assert port == meeting_port(store, job)
    assert 1024 < port <= 32767
    assert port not in (store, 29500 if store is None else None)


def test_the_port_above_that_of_the_store() -> None:
    assert meeting_port(29500) == 29501
    assert meeting_port(None) == 29501
