"""What flags and an environment say about the nodes of a job; pure.

Read are Slurm's variables of a step, torchrun's PET_*, what launch scripts export by hand
(MASTER_ADDR, NNODES, NODE_RANK) or torchrun sets in its workers, what Kubernetes and users of
JobSet set in pods, and Open MPI's. A flag beats the environment; two variables that contradict
each other are an error that names both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

from holdfast.errors import ConfigError
from holdfast.nodes.reach import slurm
from holdfast.nodes.reach.job_numbers import NodeCount, StorePort, number_in, whole
from holdfast.nodes.reach.meeting import (
    DEFAULT_STORE_PORT,
    MeetingPlan,
    join_endpoint,
    meeting_port,
)


class MeetingOptions(NamedTuple):
    """What was typed; None where nothing was."""

    nnodes: str | None = None
    join: str | None = None
    master_addr: str | None = None
    master_port: int | None = None


class Alone(NamedTuple):
    """Nothing tells that other nodes take part now."""

    hint: str = ""
    """how all nodes would, where a job of several is at hand"""


class _Said(NamedTuple):
    """A value and the variable or flag that has it."""

    value: str
    source: str


def plan_meeting(options: MeetingOptions, environment: Mapping[str, str]) -> MeetingPlan | Alone:
    """The meeting of this job's nodes."""
    in_step = slurm.in_step(environment)
    counted = _count(options, environment, in_step=in_step)
    if counted is None or (counted.most < 2 and options.join is None):
        return Alone(slurm.how_all_would(environment, "holdfast check"))
    store = _store_port(options, environment)
    if in_step:
        plan = slurm.plan_of_step(environment, counted, store)
    else:
        plan = _by_variables(options, environment, counted, store)
    if options.join is not None:
        host, port = join_endpoint(options.join)
        plan = dataclasses.replace(
            plan,
            host=host,
            host_source="--join",
            port=port,
            port_source="--join",
            by_address=True,
        )
    if plan.index is not None and plan.index >= plan.nodes:
        raise ConfigError(
            f"{plan.index_source} must be below {plan.nodes} ({counted.source}), got {plan.index}"
        )
    probed = store or StorePort(DEFAULT_STORE_PORT, "the default of torch")
    if probed.port == plan.port:
        raise ConfigError(
            f"{plan.port_source} and {probed.source} are both port {plan.port}: the job's store"
            " will listen there, and check tries that port itself",
            hint=f"--join {plan.host}:{meeting_port(plan.port)}",
        )
    aside = _steps_aside(environment, in_step=in_step)
    least = counted.least if counted.least < counted.most else 0
    return dataclasses.replace(plan, least=least, steps_aside=aside)


def _count(
    options: MeetingOptions, environment: Mapping[str, str], *, in_step: bool
) -> NodeCount | None:
    """How many nodes. A flag beats what a script exported, but no step has more nodes than Slurm
    gave it; variables must agree.
    """
    typed = options.nnodes is not None
    names = (
        *(("SLURM_STEP_NUM_NODES",) if in_step else ()),
        *(() if typed else ("PET_NNODES", "NNODES")),
    )
    said = [_Said(options.nnodes, "--nnodes")] if options.nnodes is not None else []
    said += [_Said(text, name) for name in names if (text := environment.get(name, "").strip())]
    counts = [_range(one) for one in said] or _ranks_per_node(environment)
    if not counts:
        if options.join is not None:
            raise ConfigError("--join needs the number of nodes", hint="add --nnodes N")
        return None
    first = counts[0]
    for other in counts[1:]:
        if other.least > first.most or first.least > other.most:
            raise ConfigError(
                f"{first.in_words()}, {other.in_words()}", hint=f"make {first.source} agree"
            )
    return counts[-1] if typed and in_step else first


def _range(said: _Said) -> NodeCount:
    """'2', or torchrun's elastic '2:4'."""
    low, colon, high = said.value.partition(":")
    least = whole(low)
    most = whole(high) if colon else least
    if least is None or most is None or not 1 <= least <= most:
        raise ConfigError(
            f"{said.source} must be N or MIN:MAX with 1 <= MIN <= MAX, got {said.value[:40]!r}"
        )
    return NodeCount(least, most, said.source)


def _ranks_per_node(environment: Mapping[str, str]) -> list[NodeCount]:
    """Ranks of the job by ranks of this node, where that comes out even."""
    for world, local in (
        ("WORLD_SIZE", "LOCAL_WORLD_SIZE"),
        ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ):
        total, here = whole(environment.get(world, "")), whole(environment.get(local, ""))
        if total and here and total % here == 0:
            return [NodeCount(total // here, total // here, f"{world} / {local}")]
    return []


def _by_variables(
    options: MeetingOptions,
    environment: Mapping[str, str],
    counted: NodeCount,
    store: StorePort | None,
) -> MeetingPlan:
    host, endpoint_port = _host(options, environment)
    if store is None and endpoint_port:
        store = StorePort(endpoint_port, "PET_RDZV_ENDPOINT")
    index = _index(environment)
    return MeetingPlan(
        nodes=counted.most,
        nodes_source=counted.source,
        host=host.value if host else "",
        host_source=host.source if host else "",
        port=meeting_port(store.port if store else None),
        port_source=f"{store.source} + 1" if store else "default",
        index=int(index.value) if index else None,
        index_source=index.source if index else "",
        # Every Job of a JobSet counts its own pods from 0: that index makes no coordinator.
        by_address=index is None or index.source == "JOB_COMPLETION_INDEX",
        job=environment.get("PET_RDZV_ID", ""),
    )


def _host(
    options: MeetingOptions, environment: Mapping[str, str]
) -> tuple[_Said | None, int | None]:
    """The host of the job's store is where the nodes meet; the port is that of the endpoint."""
    if options.master_addr:
        return _Said(options.master_addr, "--master-addr"), None
    addresses = [
        _Said(environment[name].strip(), name)
        for name in ("MASTER_ADDR", "PET_MASTER_ADDR")
        if environment.get(name, "").strip()
    ]
    if len({said.value for said in addresses}) > 1:
        raise ConfigError(
            f"MASTER_ADDR is {addresses[0].value!r}, PET_MASTER_ADDR is {addresses[1].value!r}",
            hint="unset one of them, or name the meeting place: --join HOST:PORT",
        )
    if addresses:
        return addresses[0], None
    # behind an etcd endpoint is etcd, which is no node
    if environment.get("PET_RDZV_BACKEND", "") in ("c10d", "static", "holdfast", ""):
        endpoint = environment.get("PET_RDZV_ENDPOINT", "").strip()
        host, _, port = endpoint.rpartition(":") if ":" in endpoint else (endpoint, "", "")
        if host:
            return _Said(host.strip("[]"), "PET_RDZV_ENDPOINT"), whole(port)
    jobset, replicated = environment.get("JOBSET_NAME"), environment.get("REPLICATED_JOB_NAME")
    if jobset and replicated:  # the name that JobSet's headless service gives to the first pod
        pod = f"{jobset}-{replicated}-0-0.{jobset}"
        return _Said(pod, "JOBSET_NAME and REPLICATED_JOB_NAME"), None
    return None, None


def _index(environment: Mapping[str, str]) -> _Said | None:
    """Which node this is. torchrun's own answer counts first: it deals ranks itself."""
    said = [
        _Said(str(number), name)
        for name in ("GROUP_RANK", "PET_NODE_RANK", "NODE_RANK", "JOB_COMPLETION_INDEX")
        if (number := number_in(environment, name)) is not None
    ]
    by_hand = [one for one in said if one.source in ("PET_NODE_RANK", "NODE_RANK")]
    if len({one.value for one in by_hand}) > 1:
        raise ConfigError(
            f"PET_NODE_RANK is {by_hand[0].value}, NODE_RANK is {by_hand[1].value}",
            hint="unset one of them",
        )
    return said[0] if said else None


def _store_port(options: MeetingOptions, environment: Mapping[str, str]) -> StorePort | None:
    """The port of the job's store; 0 lets the launcher pick one, which tells nothing."""
    if options.master_port:
        return StorePort(options.master_port, "--port")
    for name in ("MASTER_PORT", "PET_MASTER_PORT"):
        if number := number_in(environment, name):
            if number > 65535:
                raise ConfigError(f"{name} must be from 0 to 65535, got {number}")
            return StorePort(number, name)
    return None


def _steps_aside(environment: Mapping[str, str], *, in_step: bool) -> str:
    """One process a node takes part; the others say why they do not."""
    names = ("SLURM_LOCALID",) if in_step else ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK")
    for name in names:
        if number := number_in(environment, name):
            return f"one process a node takes part; this is {name}={number}"
    return ""
