"""Where the launchers of a run meet: at the very place the user named; pure.

As for `check` (environment.py) flags come first, then what a scheduler or a launch script set. Here
the port is the one that was named: holdfast's launchers meet there, and the store of every attempt
gets a port of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import NamedTuple

from holdfast.analysis.machine.rendezvous import C10D_PORT, split_endpoint
from holdfast.errors import ConfigError
from holdfast.nodes.reach import slurm
from holdfast.nodes.reach.job_numbers import NodeCount, number_in, whole
from holdfast.nodes.reach.meeting import (
    DEFAULT_STORE_PORT,
    EVERYWHERE,
    MeetingPlan,
    MeetingRole,
    is_address,
    meeting_port,
    role,
)


class NodeFlags(NamedTuple):
    """What was typed, or set as PET_*; None where nothing was."""

    nnodes: str | None = None
    backend: str = "static"
    endpoint: str = ""
    master_addr: str | None = None
    master_port: int | None = None
    node_rank: int | None = None
    rdzv_id: str = ""


class OneNode(NamedTuple):
    """The job has one node, or can have no other."""

    remark: str = ""


def _rest_of_allocation(environment: Mapping[str, str]) -> str:
    """A batch script runs on the first of its nodes, and nowhere else."""
    how = slurm.how_all_would(environment, "holdfast run …")
    if not how or slurm.in_step(environment):
        return ""
    return (
        f"this allocation has {environment['SLURM_JOB_NUM_NODES']} nodes, and this starts ranks on "
        f"one of them; on all: {how}; on one on purpose: --nnodes 1"
    )


class _Place(NamedTuple):
    host: str
    source: str
    port: int
    port_source: str
    typed: bool


def plan_run(typed: NodeFlags, environment: Mapping[str, str]) -> MeetingPlan | OneNode:
    counted = _count(typed, environment)
    if counted is None:
        return OneNode(_rest_of_allocation(environment))
    if counted.most < 2:
        return OneNode()
    in_step = slurm.in_step(environment) and _step_size(environment) == counted.most
    place = _place(typed, environment, in_step=in_step)
    index, source = _index(typed, environment, in_step=in_step)
    if place is None or place.port == 0:
        return _without_place(counted, place, first=not index)
    spares = counted.least < counted.most  # then more nodes may be started than take part
    if index is not None and index >= counted.most and not spares:
        raise ConfigError(f"{source} must be below {counted.most} ({counted.source}), got {index}")
    if in_step:
        _refuse_several_launchers(environment)
        if not place.typed:
            _refuse_rank_of_another_node(typed, environment)
        named = slurm.plan_of_step(environment, counted._replace(least=counted.most), None)
    plan = MeetingPlan(
        nodes=counted.most,
        nodes_source=counted.source,
        least=counted.least if counted.least < counted.most else 0,
        host=place.host,
        host_source=place.source,
        port=place.port,
        port_source=place.port_source,
        index=index,
        index_source=source,
        # Every Job of a JobSet counts its own pods from 0: that index makes no coordinator.
        by_address=place.typed or index is None or source == "JOB_COMPLETION_INDEX",
        job=typed.rdzv_id,
    )
    if not in_step:
        return plan
    return dataclasses.replace(
        plan,
        names=named.names,
        own_name=named.own_name,
        rack=named.rack,
        job=".".join(filter(None, (named.job, typed.rdzv_id))),
        notes=named.notes,
    )


def run_role(
    plan: MeetingPlan,
    *,
    resolved: Collection[str],
    own: Collection[str],
    own_names: Collection[str] = (),
    is_host: bool | None = None,
) -> tuple[MeetingRole, str]:
    """What this launcher does, and why; `is_host` as torchrun's users set it by --rdzv-conf."""
    if is_host is not None:
        said = "--rdzv-conf is_host"
        return (MeetingRole.COORDINATE, f"{said}=1") if is_host else (MeetingRole.JOIN, f"{said}=0")
    here, why = role(plan, resolved=resolved, own=own, own_names=own_names)
    elsewhere = resolved and not set(resolved) & set(own) and not all(map(_is_loopback, resolved))
    if here is MeetingRole.COORDINATE and plan.least and elsewhere and not plan.names:
        raise ConfigError(
            f"{why}, and {plan.host} ({plan.host_source}) is {', '.join(resolved)}, which is no "
            f"address of this node: with --nnodes {plan.least}:{plan.nodes} every node that is "
            "given rank 0 would start a job of its own",
            hint="on this node only, if that address leads here (NAT): --rdzv-conf is_host=1",
        )
    return here, why


def listen_addresses(
    plan: MeetingPlan, *, resolved: Collection[str], own: Collection[str]
) -> tuple[str, ...]:
    """At the address the user named, where this node has it and others can use it; else at all of
    them: a name means another address on each node, and behind NAT the address is the router's."""
    if plan.host == "localhost":
        return ("127.0.0.1",)
    loopback = all(map(_is_loopback, resolved))
    if is_address(plan.host) and (plan.host in own or loopback):
        return (plan.host,)
    return EVERYWHERE


def meeting_doubt(plan: MeetingPlan, *, resolved: Collection[str], own: Collection[str]) -> str:
    """What may keep the other nodes from coming to this one, which coordinates; '' when nothing."""
    loopback = [address for address in resolved if _is_loopback(address)]
    if plan.host == "localhost" or (is_address(plan.host) and loopback):
        return (
            f"{plan.host} is every machine's own name for itself: only launchers on this machine "
            "can join; for several machines name an address of one of them on all"
        )
    if resolved and not loopback and not set(resolved) & set(own):
        mine = ", ".join(sorted(ip for ip in own if not _is_loopback(ip) and ":" not in ip))
        there = next(iter(resolved))
        return (
            f"{plan.host} ({plan.host_source}) is {there}, and none of this node's addresses "
            f"({mine}) is: the others come here only if that address is forwarded to this machine "
            "(NAT); is is_host=1, or node rank 0, given to one node only?"
        )
    return ""


def misresolved(plan: MeetingPlan, *, resolved: Collection[str], own_name: str) -> str:
    """The place's name is loopback here, and this machine has another name: it takes itself for the
    one that is meant. '' when not."""
    if is_address(plan.host) or not resolved or not all(map(_is_loopback, resolved)):
        return ""
    if plan.host == "localhost" or plan.host.partition(".")[0] == own_name.partition(".")[0]:
        return ""
    return (
        f"{plan.host} ({plan.host_source}) is {', '.join(resolved)} on this machine, which is "
        f"named {own_name}: it waits for the others here, and they look for {plan.host} elsewhere"
    )


def _is_loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"


def _step_size(environment: Mapping[str, str]) -> int | None:
    return number_in(environment, "SLURM_STEP_NUM_NODES")


def _count(typed: NodeFlags, environment: Mapping[str, str]) -> NodeCount | None:
    """A flag beats everything: `--nnodes 1` runs on this node only, whatever the scheduler gave."""
    if typed.nnodes is not None:
        return _range(typed.nnodes, "--nnodes")
    if slurm.in_step(environment) and (nodes := _step_size(environment)):
        return NodeCount(nodes, nodes, "SLURM_STEP_NUM_NODES")
    has_place = typed.endpoint or typed.master_addr or environment.get("MASTER_ADDR", "").strip()
    has_place = has_place or _jobset(environment)
    text = environment.get("NNODES", "").strip()
    if has_place and text:
        return _range(text, "NNODES")
    names = ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE")
    total, here = (whole(environment.get(name, "")) for name in names)
    if has_place and total and here == 1:  # one launcher a node; more are ranks of another launcher
        return NodeCount(total, total, names[0])
    return None


def _range(text: str, source: str) -> NodeCount:
    low, colon, high = text.partition(":")
    least, most = whole(low), whole(high if colon else low)
    if least is None or most is None:
        raise ConfigError(f"{source} must be a number or MIN:MAX, got {text[:40]!r}")
    if least < 1:
        raise ConfigError(f"{source} must be >= 1, got {text}")
    if least > most:
        raise ConfigError(f"{source} must be MIN:MAX with MIN <= MAX, got {text}")
    return NodeCount(least, most, source)


def _place(typed: NodeFlags, environment: Mapping[str, str], *, in_step: bool) -> _Place | None:
    if typed.endpoint:
        host, port = split_endpoint(typed.endpoint.partition(",")[0])  # etcd's may be a list
        default = C10D_PORT if typed.backend == "c10d" else DEFAULT_STORE_PORT
        source = "--rdzv-endpoint"
        port_source = source if port is not None else "torchrun's default"
        return _Place(host, source, default if port is None else port, port_source, typed=True)
    port, port_source = _port(typed, environment)
    if typed.master_addr:
        return _Place(typed.master_addr, "--master-addr", port, port_source, typed=False)
    if host := environment.get("MASTER_ADDR", "").strip():
        return _Place(host, "MASTER_ADDR", port, port_source, typed=False)
    if in_step:
        nodes = _step_size(environment) or 0
        step = slurm.plan_of_step(
            environment, NodeCount(nodes, nodes, "SLURM_STEP_NUM_NODES"), None
        )
        if port_source == "torchrun's default":
            port, port_source = meeting_port(None, _job(environment)), "SLURM_JOB_ID"
        return _Place(step.host, "SLURM_STEP_NODELIST", port, port_source, typed=False)
    if pod := _jobset(environment):
        source = "JOBSET_NAME and REPLICATED_JOB_NAME"
        return _Place(pod, source, port, port_source, typed=False)
    return None


def _job(environment: Mapping[str, str]) -> int:
    """Two steps of one job must not meet each other."""
    job, step = (whole(environment.get(name, "")) for name in ("SLURM_JOB_ID", "SLURM_STEP_ID"))
    return (job or 0) * 7 + (step or 0)


def _port(typed: NodeFlags, environment: Mapping[str, str]) -> tuple[int, str]:
    if typed.master_port is not None:
        return typed.master_port, "--master-port"
    if number := number_in(environment, "MASTER_PORT"):
        if number > 65535:
            raise ConfigError(f"MASTER_PORT must be from 0 to 65535, got {number}")
        return number, "MASTER_PORT"
    return DEFAULT_STORE_PORT, "torchrun's default"


def _jobset(environment: Mapping[str, str]) -> str:
    """The name that JobSet's headless service gives to the first pod."""
    jobset, replicated = environment.get("JOBSET_NAME"), environment.get("REPLICATED_JOB_NAME")
    return f"{jobset}-{replicated}-0-0.{jobset}" if jobset and replicated else ""


def _without_place(counted: NodeCount, place: _Place | None, *, first: bool) -> OneNode:
    """The first of several nodes may start alone; a second one that did the same would be a second
    job with the same name and the same checkpoints."""
    span = str(counted.most) if counted.least == counted.most else f"{counted.least}:{counted.most}"
    asked = f"{counted.source} {span}"
    if counted.least == 1 and first:
        return OneNode(f"{asked}: starting with this node alone, no other can join")
    if place is None:
        raise ConfigError(
            f"{asked}: nothing says where the nodes meet",
            hint=f"on every node: --rdzv-endpoint HOST:{C10D_PORT}, an address of one of the nodes",
        )
    raise ConfigError(
        f"{asked}: port 0 lets this node choose one that the others do not know",
        hint=f"on every node: --rdzv-endpoint {place.host}:{C10D_PORT}",
    )


def _index(
    typed: NodeFlags, environment: Mapping[str, str], *, in_step: bool
) -> tuple[int | None, str]:
    if typed.node_rank is not None and not in_step:
        return typed.node_rank, "--node-rank"
    names = ("SLURM_NODEID",) if in_step else ("NODE_RANK", "JOB_COMPLETION_INDEX")
    if environment.get("OMPI_COMM_WORLD_LOCAL_SIZE") == "1":
        names = (*names, "OMPI_COMM_WORLD_RANK")
    for name in names:
        if (number := number_in(environment, name)) is not None:
            return number, name
    return None, ""


def _refuse_rank_of_another_node(typed: NodeFlags, environment: Mapping[str, str]) -> None:
    """Where the nodes meet by rank. With an endpoint torchrun ignores the rank, and so do we."""
    index = number_in(environment, "SLURM_NODEID")
    if typed.node_rank not in (None, index):
        raise ConfigError(
            f"--node-rank is {typed.node_rank} on node {index} (SLURM_NODEID): a batch script "
            "expands variables once, on the first node",
            hint="leave out --node-rank: Slurm numbers the nodes",
        )


def _refuse_several_launchers(environment: Mapping[str, str]) -> None:
    """One launcher a node starts all its ranks; on every task, so that none waits for the rest."""
    here = environment.get("SLURM_STEP_TASKS_PER_NODE", "")
    counts = [whole(part.partition("(")[0]) or 0 for part in here.split(",")]
    if max(counts) > 1 or number_in(environment, "SLURM_LOCALID"):
        raise ConfigError(
            f"srun started several tasks on a node (SLURM_STEP_TASKS_PER_NODE={here}): one "
            "launcher starts all ranks of its node",
            hint="srun --ntasks-per-node=1 holdfast run --nproc-per-node N …",
        )
