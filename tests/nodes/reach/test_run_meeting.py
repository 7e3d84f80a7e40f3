"""Where the launchers of a run meet; the variables are what real launchers set."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.nodes.reach.meeting import EVERYWHERE, MeetingPlan, MeetingRole
from holdfast.nodes.reach.run_meeting import (
    NodeFlags,
    OneNode,
    listen_addresses,
    meeting_doubt,
    misresolved,
    plan_run,
    run_role,
)
from tests.nodes.reach.test_environment import JOBSET, OPENMPI, STEP, WORKER

ONE_EACH = {**STEP, "SLURM_STEP_TASKS_PER_NODE": "1(x2)"}
BY_HAND = {"MASTER_ADDR": "node-a", "MASTER_PORT": "29511", "NNODES": "2", "NODE_RANK": "1"}
C10D: dict[str, Any] = {"nnodes": "2", "backend": "c10d", "endpoint": "10.0.0.1:29400"}


def plan(environment: dict[str, str] | None = None, **typed: Any) -> MeetingPlan:
    planned = plan_run(NodeFlags(**typed), environment or {})
    assert isinstance(planned, MeetingPlan)
    return planned


@pytest.mark.parametrize(
    ("typed", "environment", "place", "index"),
    [
        (C10D, {}, ("10.0.0.1", 29400), None),
        ({**C10D, "endpoint": "head"}, {}, ("head", 29400), None),
        ({"nnodes": "2", "endpoint": "head"}, {}, ("head", 29500), None),
        ({"nnodes": "2", "master_addr": "h", "node_rank": 1}, {}, ("h", 29500), 1),
        ({"nnodes": "2", "master_addr": "h", "master_port": 7}, BY_HAND, ("h", 7), 1),
        ({"nnodes": "2"}, BY_HAND, ("node-a", 29511), 1),
        ({}, BY_HAND, ("node-a", 29511), 1),
        ({}, ONE_EACH, ("n2", 16384 + (4711 * 7 + 2) % 16383), 1),
        ({}, {**ONE_EACH, "MASTER_PORT": "29600"}, ("n2", 29600), 1),
        (C10D, ONE_EACH, ("10.0.0.1", 29400), 1),
        ({**C10D, "nnodes": "4"}, ONE_EACH, ("10.0.0.1", 29400), None),
        ({}, JOBSET, ("js-workers-0-0.js", 29500), 0),
        ({}, {**OPENMPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}, ("10.0.0.1", 29500), 4),
    ],
)
def test_the_place_is_the_one_that_was_named(
    typed: dict[str, Any],
    environment: dict[str, str],
    place: tuple[str, int],
    index: int | None,
) -> None:
    planned = plan(environment, **typed)
    assert (planned.host, planned.port) == place
    assert planned.index == index


@pytest.mark.parametrize(
    ("typed", "environment"),
    [
        ({}, {}),
        ({}, WORKER),
        ({}, OPENMPI),
        ({}, {"NNODES": "2"}),
        ({}, {**ONE_EACH, "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NODELIST": "n3"}),
        ({"nnodes": "1"}, ONE_EACH),
        ({"nnodes": "1:1", "endpoint": "10.0.0.1:29400"}, BY_HAND),
    ],
)
def test_one_node_stays_alone(typed: dict[str, Any], environment: dict[str, str]) -> None:
    assert plan_run(NodeFlags(**typed), environment) == OneNode()


def test_a_batch_script_that_starts_one_node_of_many_hears_it() -> None:
    batch = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "64", "SLURM_NODEID": "0"}
    alone = plan_run(NodeFlags(), batch)
    assert isinstance(alone, OneNode)
    assert "64 nodes, and this starts ranks on one of them" in alone.remark
    assert "srun --nodes=64 --ntasks=64 --ntasks-per-node=1 holdfast run" in alone.remark
    assert plan_run(NodeFlags(nnodes="1"), batch) == OneNode()
    assert plan_run(NodeFlags(), {**batch, "SLURM_JOB_NUM_NODES": "1"}) == OneNode()


def test_a_step_of_slurm_names_its_nodes() -> None:
    planned = plan(ONE_EACH)
    assert planned.names == ("n2", "n3")
    assert planned.own_name == "n3"
    assert "4711" in planned.job


@pytest.mark.parametrize(
    "changed", [{"SLURM_STEP_TASKS_PER_NODE": "4(x2)"}, {"SLURM_LOCALID": "1"}]
)
def test_several_launchers_on_a_node_of_slurm_are_refused(changed: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="one launcher starts all ranks of its node"):
        plan({**ONE_EACH, **changed})


def test_a_rank_that_no_node_has_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"--node-rank must be below 2 \(--nnodes\), got 2"):
        plan(nnodes="2", master_addr="h", node_rank=2)
    spare = plan(nnodes="2:3", master_addr="h", node_rank=3)
    assert isinstance(spare, MeetingPlan)
    assert spare.index == 3


OWN = ("127.0.0.1", "10.0.0.1")


@pytest.mark.parametrize(
    ("typed", "resolved", "expected"),
    [
        (C10D, ("10.0.0.1",), MeetingRole.COORDINATE_IF_FREE),
        (C10D, ("10.0.0.2",), MeetingRole.JOIN),
        ({**C10D, "endpoint": "a:1"}, ("127.0.1.1",), MeetingRole.COORDINATE_IF_FREE),
        # torchrun ignores a rank beside an endpoint: batch scripts give 0 to every node
        ({**C10D, "node_rank": 0}, ("10.0.0.2",), MeetingRole.JOIN),
        ({**C10D, "node_rank": 1}, ("203.0.113.7",), MeetingRole.JOIN),
        ({"nnodes": "2", "master_addr": "h", "node_rank": 0}, (), MeetingRole.COORDINATE),
        ({"nnodes": "2", "master_addr": "h", "node_rank": 1}, ("10.0.0.1",), MeetingRole.JOIN),
        ({"nnodes": "2", "master_addr": "h"}, ("10.0.0.1",), MeetingRole.COORDINATE_IF_FREE),
        ({"nnodes": "2", "master_addr": "h"}, ("10.0.0.2",), MeetingRole.JOIN),
    ],
)
def test_who_coordinates(
    typed: dict[str, Any], resolved: tuple[str, ...], expected: MeetingRole
) -> None:
    assert run_role(plan(**typed), resolved=resolved, own=OWN)[0] is expected


def test_a_name_of_several_machines_makes_none_of_them_the_coordinator() -> None:
    service = plan(**{**C10D, "endpoint": "train:1"})
    with pytest.raises(ConfigError, match=r"several machines here \(10.0.0.1, 10.0.0.2\)"):
        run_role(service, resolved=("10.0.0.2", "10.0.0.1"), own=OWN)
    own = ("127.0.1.1", "10.0.0.1", "fe80::1")
    assert run_role(service, resolved=own, own=OWN)[0] is MeetingRole.COORDINATE_IF_FREE
    node_0 = plan(**{**C10D, "endpoint": "train-0.train:1"})
    called = ("train-0", "train-0.train.default.svc.cluster.local")
    for resolved in ((), ("10.0.0.1", "10.9.0.1")):
        found, _ = run_role(node_0, resolved=resolved, own=OWN, own_names=called)
        assert found is MeetingRole.COORDINATE_IF_FREE
    found, _ = run_role(node_0, resolved=(), own=OWN, own_names=("train-1", "train-1.train.x"))
    assert found is MeetingRole.JOIN


def test_rank_zero_on_every_node_starts_no_two_jobs() -> None:
    typed: dict[str, Any] = {"nnodes": "1:2", "master_addr": "h", "node_rank": 0}
    with pytest.raises(ConfigError, match="every node that is given rank 0"):
        run_role(plan(**typed), resolved=("10.0.0.2",), own=OWN)
    assert run_role(plan(**typed), resolved=("10.0.0.1",), own=OWN)[0] is MeetingRole.COORDINATE
    assert run_role(plan(**typed), resolved=("10.0.0.2",), own=OWN, is_host=True)[0] is (
        MeetingRole.COORDINATE
    )


def test_a_rank_that_a_batch_script_expanded_once_is_refused_or_ignored() -> None:
    with pytest.raises(ConfigError, match=r"--node-rank is 0 on node 1 \(SLURM_NODEID\)"):
        plan(ONE_EACH, nnodes="2", master_addr="n2", node_rank=0)
    with_endpoint = plan(ONE_EACH, **C10D, node_rank=0)
    assert (with_endpoint.index, with_endpoint.index_source) == (1, "SLURM_NODEID")


@pytest.mark.parametrize("is_host", [True, False])
def test_torchruns_own_word_decides(is_host: bool) -> None:
    found, why = run_role(plan(**C10D), resolved=("10.0.0.9",), own=OWN, is_host=is_host)
    assert found is (MeetingRole.COORDINATE if is_host else MeetingRole.JOIN)
    assert why == f"--rdzv-conf is_host={int(is_host)}"


@pytest.mark.parametrize(
    ("host", "resolved", "expected"),
    [
        ("10.0.0.1", ("10.0.0.1",), ("10.0.0.1",)),
        ("127.0.0.1", ("127.0.0.1",), ("127.0.0.1",)),
        ("localhost", ("::1", "127.0.0.1"), ("127.0.0.1",)),
        ("a", ("127.0.1.1",), EVERYWHERE),
        ("203.0.113.7", ("203.0.113.7",), EVERYWHERE),
    ],
)
def test_it_listens_where_the_others_can_come(
    host: str, resolved: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    planned = plan(nnodes="2", endpoint=f"{host}:29400")
    assert listen_addresses(planned, resolved=resolved, own=OWN) == expected


@pytest.mark.parametrize(
    ("host", "resolved", "words"),
    [
        ("10.0.0.1", ("10.0.0.1",), ""),
        ("a", ("127.0.1.1",), ""),
        ("a", ("10.0.0.1",), ""),
        ("a", (), ""),
        ("localhost", ("127.0.0.1",), "only launchers on this machine can join"),
        ("127.0.0.1", ("127.0.0.1",), "only launchers on this machine can join"),
        ("203.0.113.7", ("203.0.113.7",), "none of this node's addresses (10.0.0.1) is"),
    ],
)
def test_a_coordinator_doubts_a_place_where_others_may_not_find_it(
    host: str, resolved: tuple[str, ...], words: str
) -> None:
    doubt = meeting_doubt(plan(nnodes="2", endpoint=f"{host}:29400"), resolved=resolved, own=OWN)
    assert words in doubt
    assert bool(words) == bool(doubt)


@pytest.mark.parametrize(
    ("host", "resolved", "own_name", "said"),
    [
        ("a", ("127.0.1.1",), "b", True),
        ("a", ("127.0.1.1",), "a", False),  # as Debian's installer writes it
        ("a.example", ("127.0.1.1",), "a", False),
        ("a", ("10.0.0.1",), "b", False),
        ("a", (), "b", False),
        ("localhost", ("127.0.0.1",), "b", False),
        ("127.0.0.1", ("127.0.0.1",), "b", False),
    ],
)
def test_a_machine_that_takes_itself_for_another_says_so(
    host: str, resolved: tuple[str, ...], own_name: str, *, said: bool
) -> None:
    planned = plan(nnodes="2", endpoint=f"{host}:29400")
    words = misresolved(planned, resolved=resolved, own_name=own_name)
    assert bool(words) == said
    assert not said or "a (--rdzv-endpoint) is 127.0.1.1 on this machine, which is named b" in words
