"""What an environment says about the nodes of a job; the variables are what real launchers set."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ConfigError
from holdfast.nodes.reach.environment import Alone, MeetingOptions, plan_meeting
from holdfast.nodes.reach.meeting import MeetingPlan

STEP = {
    "SLURMD_NODENAME": "n3",
    "SLURM_CLUSTER_NAME": "lab",
    "SLURM_JOB_ID": "4711",
    "SLURM_JOB_NODELIST": "n[1-4]",
    "SLURM_JOB_NUM_NODES": "4",
    "SLURM_NNODES": "4",
    "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.1",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "1",
    "SLURM_PROCID": "3",
    "SLURM_STEP_ID": "2",
    "SLURM_STEP_NODELIST": "n[2-3]",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_TOPOLOGY_ADDR": "top.leaf2.n3",
    "SLURM_TOPOLOGY_ADDR_PATTERN": "switch.switch.node",
}
"""of a task of `srun --nodes=2` inside an allocation of four"""

KUBEFLOW = {  # a TrainJob of Kubeflow Trainer
    "PET_NNODES": "2",
    "PET_NPROC_PER_NODE": "auto",
    "PET_NODE_RANK": "1",
    "PET_MASTER_ADDR": "job-node-0-0.job",
    "PET_MASTER_PORT": "29400",
    "JOB_COMPLETION_INDEX": "1",
}
PYTORCHJOB = {  # elastic, of the training operator
    "PET_NNODES": "1:4",
    "PET_RDZV_BACKEND": "c10d",
    "PET_RDZV_ENDPOINT": "job-worker-0:23456",
    "PET_RDZV_ID": "job",
}
JOBSET = {  # JobSet sets nothing itself: these come from users' manifests
    "JOB_COMPLETION_INDEX": "0",
    "JOBSET_NAME": "js",
    "REPLICATED_JOB_NAME": "workers",
    "NNODES": "4",
}
WORKER = {  # inside a rank of torchrun
    "MASTER_ADDR": "node-a",
    "MASTER_PORT": "29500",
    "WORLD_SIZE": "16",
    "LOCAL_WORLD_SIZE": "8",
    "RANK": "8",
    "LOCAL_RANK": "0",
    "GROUP_RANK": "1",
}
OPENMPI = {
    "OMPI_COMM_WORLD_SIZE": "16",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
    "OMPI_COMM_WORLD_RANK": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "MASTER_ADDR": "10.0.0.1",
}


def plan(environment: dict[str, str], **options: str | int) -> MeetingPlan:
    planned = plan_meeting(MeetingOptions(**options), environment)  # type: ignore[arg-type]
    assert isinstance(planned, MeetingPlan)
    return planned


def test_a_step_of_slurm() -> None:
    planned = plan(STEP)
    assert (planned.nodes, planned.nodes_source) == (2, "SLURM_STEP_NUM_NODES")
    assert planned.names == ("n2", "n3")
    assert (planned.index, planned.index_source) == (1, "SLURM_NODEID")
    assert planned.own_name == "n3"
    assert planned.host == "n2"
    assert planned.rack == "leaf2"
    assert planned.job == "lab.4711.2"
    assert not planned.by_address
    assert planned.steps_aside == ""
    assert planned.notes == ()
    assert 16384 <= planned.port < 32767


def test_every_node_of_a_job_computes_the_same_port_and_jobs_differ() -> None:
    assert plan(STEP).port == plan({**STEP, "SLURM_NODEID": "0", "SLURMD_NODENAME": "n2"}).port
    assert plan(STEP).port != plan({**STEP, "SLURM_JOB_ID": "4712"}).port


def test_one_process_a_node_takes_part_in_slurm() -> None:
    aside = plan({**STEP, "SLURM_LOCALID": "3"}).steps_aside
    assert aside == "one process a node takes part; this is SLURM_LOCALID=3"


def test_kubeflow_trainer() -> None:
    planned = plan(KUBEFLOW)
    assert (planned.nodes, planned.index, planned.by_address) == (2, 1, False)
    assert (planned.host, planned.host_source) == ("job-node-0-0.job", "PET_MASTER_ADDR")
    assert (planned.port, planned.port_source) == (29401, "PET_MASTER_PORT + 1")


def test_an_elastic_pytorchjob() -> None:
    planned = plan(PYTORCHJOB)
    assert (planned.least, planned.nodes, planned.index) == (1, 4, None)
    assert (planned.host, planned.port) == ("job-worker-0", 23457)
    assert planned.port_source == "PET_RDZV_ENDPOINT + 1"
    assert planned.by_address


def test_a_jobset() -> None:
    planned = plan(JOBSET)
    assert (planned.nodes, planned.nodes_source) == (4, "NNODES")
    assert planned.host == "js-workers-0-0.js"
    assert planned.index == 0
    assert planned.by_address, "each of its Jobs counts from 0"


def test_a_rank_of_torchrun() -> None:
    planned = plan(WORKER)
    assert (planned.nodes, planned.nodes_source) == (2, "WORLD_SIZE / LOCAL_WORLD_SIZE")
    assert (planned.index, planned.host, planned.port) == (1, "node-a", 29501)
    assert "LOCAL_RANK=5" in plan({**WORKER, "LOCAL_RANK": "5"}).steps_aside


def test_openmpi() -> None:
    planned = plan(OPENMPI)
    assert (planned.nodes, planned.index) == (4, None)
    assert planned.host == "10.0.0.1"
    assert plan({**OPENMPI, "OMPI_COMM_WORLD_LOCAL_RANK": "1"}).steps_aside


def test_the_same_command_on_every_node() -> None:
    planned = plan({}, nnodes="4", join="10.0.0.1:4000")
    assert (planned.nodes, planned.host, planned.port) == (4, "10.0.0.1", 4000)
    assert (planned.nodes_source, planned.port_source) == ("--nnodes", "--join")
    assert planned.by_address


def test_a_flag_beats_what_a_script_exported() -> None:
    assert plan({**KUBEFLOW, "NNODES": "2"}, nnodes="4").nodes == 4
    assert plan(KUBEFLOW, join="a:4000").host == "a"
    assert plan(KUBEFLOW, join="a:4000").by_address
    assert plan(STEP, join="a:4000").host == "a"
    assert plan(WORKER, master_addr="node-z").host == "node-z"
    assert plan(WORKER, master_port=4000).port == 4001


def test_elastic_sizes_that_overlap_agree() -> None:
    assert plan(STEP, nnodes="1:4").nodes == 2, "no step has more nodes than Slurm gave it"


def test_an_etcd_endpoint_is_no_node() -> None:
    etcd = {"PET_NNODES": "2", "PET_RDZV_BACKEND": "etcd-v2", "PET_RDZV_ENDPOINT": "etcd:2379"}
    assert plan(etcd).host == ""


def test_a_rank_that_the_batch_script_expanded_is_a_note() -> None:
    (note,) = plan({**STEP, "NODE_RANK": "0"}).notes
    assert note.startswith("NODE_RANK is 0 on node 1 (SLURM_NODEID)")


@pytest.mark.parametrize(
    ("environment", "hint"),
    [
        ({}, ""),
        ({"MASTER_ADDR": "a", "MASTER_PORT": "1"}, ""),
        ({"PET_NNODES": "1"}, ""),
        ({"WORLD_SIZE": "16"}, ""),  # ranks alone tell no nodes
        ({"WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "5"}, ""),
        ({"SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_ID": "1"}, ""),
        (
            {"SLURM_JOB_NUM_NODES": "4", "SLURM_JOB_ID": "1", "SLURM_NODEID": "0"},
            "srun --nodes=4 --ntasks=4 --ntasks-per-node=1 holdfast check",
        ),
        # a batch script that was submitted from inside a step of another job
        (
            {**STEP, "SLURMD_NODENAME": "n7", "SLURM_NODEID": "0", "SLURM_JOB_NUM_NODES": "2"},
            "srun --nodes=2 --ntasks=2 --ntasks-per-node=1 holdfast check",
        ),
        (
            {
                **STEP,
                "SLURM_STEP_NUM_NODES": "1",
                "SLURMD_NODENAME": "n2",
                "SLURM_NODEID": "0",
                "SLURM_STEP_NODELIST": "n2",
            },
            "srun --nodes=4 --ntasks=4 --ntasks-per-node=1 holdfast check",
        ),
    ],
)
def test_one_machine_alone(environment: dict[str, str], hint: str) -> None:
    assert plan_meeting(MeetingOptions(), environment) == Alone(hint)


@pytest.mark.parametrize(
    ("environment", "options", "sentence"),
    [
        (STEP, {"nnodes": "4"}, "--nnodes says 4 nodes, SLURM_STEP_NUM_NODES says 2 nodes"),
        (
            {**STEP, "PET_NNODES": "4"},
            {},
            "SLURM_STEP_NUM_NODES says 2 nodes, PET_NNODES says 4 nodes",
        ),
        ({**KUBEFLOW, "NNODES": "3"}, {}, "PET_NNODES says 2 nodes, NNODES says 3 nodes"),
        ({**PYTORCHJOB, "NNODES": "5"}, {}, "PET_NNODES says 1 to 4 nodes, NNODES says 5 nodes"),
        ({**KUBEFLOW, "NODE_RANK": "0"}, {}, "PET_NODE_RANK is 1, NODE_RANK is 0"),
        (
            {**KUBEFLOW, "MASTER_ADDR": "x"},
            {},
            "MASTER_ADDR is 'x', PET_MASTER_ADDR is 'job-node-0-0.job'",
        ),
        (
            {**KUBEFLOW, "PET_NODE_RANK": "2"},
            {},
            "PET_NODE_RANK must be below 2 (PET_NNODES), got 2",
        ),
        ({**STEP, "SLURM_NODEID": "2"}, {}, "SLURM_NODEID must be below 2"),
        (
            {**STEP, "SLURM_STEP_NODELIST": "n2"},
            {},
            "SLURM_STEP_NUM_NODES says 2 nodes, SLURM_STEP",
        ),
        (
            {**STEP, "SLURM_STEP_NODELIST": "n[2-"},
            {},
            "SLURM_STEP_NODELIST: a bracket is not closed",
        ),
        ({**STEP, "SLURM_NODEID": "x"}, {}, "SLURM_NODEID must be a whole number >= 0, got 'x'"),
        ({"PET_NNODES": "two"}, {}, "PET_NNODES must be N or MIN:MAX"),
        ({}, {"nnodes": "4:2", "join": "a:1"}, "--nnodes must be N or MIN:MAX"),
        ({}, {"join": "a:4000"}, "--join needs the number of nodes"),
        (WORKER, {"join": "node-a:29500"}, "--join and MASTER_PORT are both port 29500"),
        ({}, {"nnodes": "2", "join": "a:29500"}, "--join and the default of torch are both port"),
        ({**WORKER, "MASTER_PORT": "70000"}, {}, "MASTER_PORT must be from 0 to 65535"),
    ],
)
def test_contradictions_name_both_sources(
    environment: dict[str, str], options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        plan(environment, **options)
    assert refused.value.sentence.startswith(sentence)


def test_the_way_out_of_a_shared_port_can_be_pasted() -> None:
    with pytest.raises(ConfigError) as refused:
        plan(WORKER, join="node-a:29500")
    assert refused.value.hint == "--join node-a:29501"


NAMES = sorted({*STEP, *KUBEFLOW, *PYTORCHJOB, *JOBSET, *WORKER, *OPENMPI, "NODE_RANK"})
values = st.one_of(
    st.sampled_from(["0", "1", "2", "4", "29500", "n[1-2]", "", "a", "a:1", "c10d", "1:4"]),
    st.text(max_size=8),
)


@given(st.dictionaries(st.sampled_from(NAMES), values, max_size=12))
def test_any_environment_is_a_plan_or_one_sentence(environment: dict[str, str]) -> None:
    try:
        planned = plan_meeting(MeetingOptions(), environment)
    except ConfigError:
        return
    if isinstance(planned, MeetingPlan):
        assert planned.nodes > 1
        assert 1024 < planned.port <= 32767
        assert planned.index is None or planned.index < planned.nodes
