"""Services of one compose file that are the nodes of one job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from holdfast import shell_words
from holdfast.analysis.source.launch import command_line, containers
from holdfast.analysis.source.source import ContainerRun, Launch, Source, SourceKind
from holdfast.analysis.source.source_problem import SourceProblem

WAITS = "the job waits for the missing one until the timeout"


class ServiceNode(NamedTuple):
    launch: Launch
    container: ContainerRun
    nodes: int

    @property
    def master(self) -> str:
        flag = self.launch.flag("master-addr", "rdzv-endpoint")
        return command_line.endpoint(flag.value)[0] if flag is not None and flag.known else ""

    @property
    def job(self) -> tuple[object, ...]:
        arguments = tuple(word.text for word in self.launch.script_arguments)
        return self.launch.script, arguments, self.nodes, self.master


def problems(source: Source) -> Iterator[SourceProblem]:
    if source.kind is not SourceKind.COMPOSE:
        return
    jobs: dict[tuple[object, ...], list[ServiceNode]] = {}
    for node in _nodes(source):
        jobs.setdefault(node.job, []).append(node)
    names = {container.service for container in source.containers}
    for nodes in jobs.values():
        yield from _replicas_of_one_rank(nodes)
        if nodes[0].master in names:
            yield from _too_few(nodes)
            yield from _master_is_another(nodes)
    yield from _variables(source)


def _nodes(source: Source) -> Iterator[ServiceNode]:
    for container in source.containers:
        launch = containers.launch_inside(source, container)
        if launch is None or launch.kind not in command_line.TORCHRUN:
            continue
        count = command_line.nodes(launch)
        if count is not None and count[0] > 1 and not command_line.hides_flags(launch):
            yield ServiceNode(launch, container, count[0])


def _rank(node: ServiceNode) -> int | None:
    backend = node.launch.flag("rdzv-backend")
    static = backend is None or backend.value == "static"
    return command_line.number(node.launch.flag("node-rank")) if static else None


def _replicas_of_one_rank(nodes: list[ServiceNode]) -> Iterator[SourceProblem]:
    for node in nodes:
        flag, replicas = node.launch.flag("node-rank"), node.container.replicas or 1
        if flag is not None and _rank(node) is not None and replicas > 1:
            yield SourceProblem(
                "error",
                f"all {replicas} replicas of {node.container.service} are --node-rank {flag.value}",
                f"each node of a job needs its own rank; {WAITS}",
                "one service for each node, or `--rdzv-backend c10d --rdzv-endpoint "
                "SERVICE:29400`, which numbers them itself",
                flag.place,
            )


def _too_few(nodes: list[ServiceNode]) -> Iterator[SourceProblem]:
    """All of them are in this file: the master's name is known on its own network only; others
    may be shared with other files, and with other machines."""
    if any(node.container.option("network") is not None for node in nodes):
        return
    counts = [node.container.replicas for node in nodes]
    started = sum(count for count in counts if count is not None)
    flag, wanted = nodes[0].launch.flag("nnodes"), nodes[0].nodes
    if flag is not None and None not in counts and started < wanted:
        yield SourceProblem(
            "error",
            f"torchrun waits for {wanted} nodes, but this file starts {started}",
            f"the master {nodes[0].master} is a service of this file, so all nodes are in it; "
            "the rendezvous waits for the missing ones until its timeout",
            f"`--nnodes={started}`, or another service for each missing node",
            flag.place,
        )


def _master_is_another(nodes: list[ServiceNode]) -> Iterator[SourceProblem]:
    for node in nodes:
        flag, rank = node.launch.flag("master-addr"), _rank(node)
        if node.container.service == node.master and rank and flag is not None:
            first = next((n.container.service for n in nodes if _rank(n) == 0), "")
            if first:
                yield SourceProblem(
                    "error",
                    f"the master {node.master} is node {rank}, but node 0 is {first}",
                    "node 0 serves the store: all nodes look for it on another container",
                    f"`--master-addr {shell_words.word(first, 'SERVICE')}` in every service",
                    flag.place,
                )


def _variables(source: Source) -> Iterator[SourceProblem]:
    """RANK and MASTER_PORT in the environment of services that form one job."""
    seen: dict[tuple[str, ...], ContainerRun] = {}
    ports: dict[tuple[str, ...], tuple[str, ContainerRun]] = {}
    for container in source.containers:
        names = ("MASTER_ADDR", "WORLD_SIZE", "RANK", "MASTER_PORT")
        flags = [containers.variable(container, name) for name in names]
        given = [flag.value if flag is not None and flag.known else "" for flag in flags]
        address, size, rank, port = given
        if not address or size in ("", "0", "1") or not rank.isdecimal():
            continue
        at = flags[2].place if flags[2] else container.place
        job = (container.image, address, size)
        first = seen.setdefault((*job, port, rank), container)
        if first is not container:
            yield SourceProblem(
                "error",
                f"{first.service} and {container.service} are both RANK {rank}",
                f"each rank of a job has its own number; {WAITS}",
                "number the services from 0",
                at,
            )
        known, other = ports.setdefault(job, (port, container))
        if port and known and port != known and first is container:
            yield SourceProblem(
                "error",
                f"{container.service} expects the master on port {port}, {other.service} on "
                f"{known}",
                "all ranks of a job use one master port; with two they wait for each other until "
                "the timeout",
                "one MASTER_PORT for all",
                flags[3].place if flags[3] else at,
            )
