"""What the variables of a Slurm step say about its nodes; pure."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.errors import ConfigError
from holdfast.nodes.reach import host_list, rack
from holdfast.nodes.reach.job_numbers import NodeCount, StorePort, number_in, whole
from holdfast.nodes.reach.meeting import MeetingPlan, meeting_port

_STEP = ("SLURM_CLUSTER_NAME", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")
"""what tells one step from all others"""


def in_step(environment: Mapping[str, str]) -> bool:
    """Whether this is a task of the step that the variables speak of. A batch script that was
    submitted from inside another job still has the list of that job's step.
    """
    index = number_in(environment, "SLURM_NODEID")
    if index is None or "SLURM_STEP_NODELIST" not in environment:
        return False
    own = environment.get("SLURMD_NODENAME")
    names = _step_names(environment)
    return own is None or index >= len(names) or names[index] == own


def _step_names(environment: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(host_list.expand(environment["SLURM_STEP_NODELIST"], source="SLURM_STEP_NODELIST"))


def plan_of_step(
    environment: Mapping[str, str], counted: NodeCount, store: StorePort | None
) -> MeetingPlan:
    """Node 0 of the step coordinates; the step's list is in the order of SLURM_NODEID."""
    names = _step_names(environment)
    if len(names) != counted.most:
        raise ConfigError(f"{counted.in_words()}, SLURM_STEP_NODELIST has {len(names)}")
    index = number_in(environment, "SLURM_NODEID")
    job = environment.get("SLURM_JOB_ID", "")
    return MeetingPlan(
        nodes=counted.most,
        nodes_source=counted.source,
        host=names[0],
        host_source="SLURM_STEP_NODELIST",
        port=meeting_port(store.port if store else None, whole(job) or 0),
        port_source=f"{store.source} + 1" if store else "SLURM_JOB_ID",
        index=index,
        index_source="SLURM_NODEID",
        by_address=False,
        names=names,
        own_name=names[index] if index is not None and index < len(names) else "",
        rack=rack.from_slurm(environment),
        job=".".join(filter(None, (environment.get(name) for name in _STEP))),
        notes=_rank_of_another_node(environment, index),
    )


def _rank_of_another_node(environment: Mapping[str, str], index: int | None) -> tuple[str, ...]:
    rank = whole(environment.get("NODE_RANK", "").strip())
    if rank is None or rank == index:
        return ()
    note = (
        f"NODE_RANK is {rank} on node {index} (SLURM_NODEID): a batch script expands variables"
        " once, on the first node; set NODE_RANK inside srun"
    )
    return (note,)


def how_all_would(environment: Mapping[str, str], command: str) -> str:
    """In an allocation, outside of a step on all of its nodes."""
    nodes = whole(environment.get("SLURM_JOB_NUM_NODES", ""))
    if not nodes or nodes < 2:
        return ""
    return f"srun --nodes={nodes} --ntasks={nodes} --ntasks-per-node=1 {command}"
