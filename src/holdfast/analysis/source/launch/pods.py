"""Pods of a Kubernetes manifest against the number of nodes that the launcher in them waits for.

    parallelism: 2          two pods
    torchrun --nnodes=4     each waits for three others

Operators of training jobs hand the number and the rank to torchrun by PET_ variables; what an
option says overrides them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from holdfast.analysis.source.launch import command_line, containers
from holdfast.analysis.source.source import ContainerRun, Launch, PodGroup, Source, Workload
from holdfast.analysis.source.source_problem import SourceProblem

OPERATED = frozenset({"PyTorchJob", "TrainJob"})
"""kinds whose operator tells every pod its rank and the number of all"""
MEETING = ("master-addr", "rdzv-endpoint")


class PodLaunch(NamedTuple):
    launch: Launch
    container: ContainerRun
    group: PodGroup
    workload: Workload

    @property
    def nodes(self) -> tuple[int, int] | None:
        return command_line.nodes(self.launch)

    @property
    def who(self) -> str:
        named = f"{self.workload.kind} {self.workload.name}".strip()
        return f"{self.group.name} of {named}" if self.group.name else named


def problems(source: Source) -> Iterator[SourceProblem]:
    started = list(launches(source))
    for one in started:
        if one.nodes is not None:
            yield from _counts(one, started)
        else:
            yield from _alone_together(one)
        yield from _same_rank(one)
    yield from _same_variable(source)


def launches(source: Source) -> Iterator[PodLaunch]:
    """torchrun in the pods; not where options come from elsewhere."""
    for workload in source.workloads:
        for group in workload.groups:
            for container in group.containers:
                launch = containers.launch_inside(source, container)
                known = launch is not None and launch.kind in command_line.TORCHRUN
                if launch is not None and known and not command_line.hides_flags(launch):
                    yield PodLaunch(launch, container, group, workload)


def _counts(one: PodLaunch, started: list[PodLaunch]) -> Iterator[SourceProblem]:
    """A job may be spread over several resources of one file, or over several files where each
    holds a single pod."""
    flag, nodes = one.launch.flag("nnodes"), one.nodes
    together = {id(w): w for w in (other.workload for other in started if other.nodes == nodes)}
    counts = [workload.pods for workload in together.values()]
    own = one.group.count
    if flag is None or nodes is None or own is None or None in counts:
        return
    total = sum(count for count in counts if count is not None)
    single = all(workload.kind == "Pod" for workload in together.values())
    if total < nodes[0] and not single:
        said = any(group.counted for w in together.values() for group in w.groups)
        scaled = any(workload.scaled for workload in together.values())
        yield SourceProblem(
            "error" if said and not scaled else "warning",
            f"torchrun waits for {nodes[0]} nodes, but only {_pods(total)} at the same time",
            f"{one.who} runs {own}{'' if one.group.counted else ', by default'}; the rendezvous "
            "waits for the missing nodes until its timeout",
            f"make both numbers the same: {_where(one.workload.kind, nodes[0])}, or "
            f"`--nnodes={total}`",
            flag.place,
        )
    elif own > nodes[1]:
        yield SourceProblem(
            "warning",
            f"{own} pods run torchrun with --nnodes={flag.value}",
            "the rendezvous is complete before all of them have joined; the others wait, or fail",
            f"`--nnodes={own}`",
            flag.place,
        )


def _pods(count: int) -> str:
    return f"{count} pods run" if count != 1 else "1 pod runs"


def _where(kind: str, count: int) -> str:
    if kind in ("Job", "JobSet"):
        return f"`parallelism: {count}` and `completions: {count}`"
    return f"`numNodes: {count}`" if kind == "TrainJob" else f"`replicas: {count}` in all"


def _alone_together(one: PodLaunch) -> Iterator[SourceProblem]:
    """Several pods that are to meet, and each of them a job of one node."""
    launch, meeting = one.launch, one.launch.flag(*MEETING)
    told = launch.flag("nnodes") or command_line.exported(launch, "PET_NNODES")
    several = one.group.count is not None and one.group.count > 1
    if meeting is None or told or not several or one.workload.kind in OPERATED:
        return
    yield SourceProblem(
        "warning",
        f"{one.group.count} pods run torchrun without --nnodes: each is a job of its own",
        "one node is torchrun's default; the pods do not wait for each other, although they are "
        f"told to meet (--{meeting.name})",
        f"`--nnodes={one.group.count} --node-rank=$JOB_COMPLETION_INDEX`, or "
        "`--rdzv-backend c10d`, which numbers the nodes itself",
        meeting.place,
    )


def _same_rank(one: PodLaunch) -> Iterator[SourceProblem]:
    flag, backend = one.launch.flag("node-rank"), one.launch.flag("rdzv-backend")
    rank, count, nodes = command_line.number(flag), one.group.count, one.nodes
    static = backend is None or (backend.known and backend.value == "static")
    if flag is None or rank is None or count is None or count < 2 or not static:
        return
    if nodes is not None and nodes[1] > 1:
        yield SourceProblem(
            "error",
            f"all {count} pods of {one.who} are --node-rank {rank}",
            "each node of a job needs its own rank; the job waits for the missing ones until the "
            "timeout",
            _numbered(one.workload.kind, "--node-rank="),
            flag.place,
        )


def _same_variable(source: Source) -> Iterator[SourceProblem]:
    """RANK, for a script that torchrun does not start."""
    for workload in source.workloads:
        for group in workload.groups if workload.kind not in OPERATED else ():
            for container in group.containers:
                rank, size = (containers.variable(container, n) for n in ("RANK", "WORLD_SIZE"))
                fixed = rank is not None and rank.known and rank.value.isdecimal()
                several = size is not None and size.known and size.value not in ("", "0", "1")
                if group.count is None or group.count < 2 or rank is None or not fixed:
                    continue
                if several and containers.launch_inside(source, container) is None:
                    yield SourceProblem(
                        "error",
                        f"RANK={rank.value} in all {group.count} pods of {workload.kind} "
                        f"{workload.name}".rstrip(),
                        "each rank of a job has its own number; the job waits for the missing ones",
                        _numbered(workload.kind, "RANK: "),
                        rank.place,
                    )


def _numbered(kind: str, setting: str) -> str:
    if kind in ("Job", "JobSet"):
        return f"`completionMode: Indexed`, and in a shell `{setting}$JOB_COMPLETION_INDEX`"
    if kind == "StatefulSet":
        return f"`{setting}${{HOSTNAME##*-}}` in a shell: the pods of a StatefulSet are numbered"
    return f"`{setting}…` from a number that each pod has of its own; or `--rdzv-backend c10d`"
