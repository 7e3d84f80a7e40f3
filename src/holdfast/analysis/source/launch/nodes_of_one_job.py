"""Launches of one text that are the nodes of one job, and what they disagree about.

    ssh a torchrun --nnodes 2 --node-rank 0 --master-addr a --master-port 29500 train.py &
    ssh b torchrun --nnodes 2 --node-rank 1 --master-addr a --master-port 29501 train.py

They are one job where script, arguments and number of nodes are the same.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast import shell_words
from holdfast.analysis.source.launch import command_line, containers
from holdfast.analysis.source.source import Launch, Source, SourceKind
from holdfast.analysis.source.source_problem import SourceProblem

SSH_VALUES = frozenset(f"-{letter}" for letter in "BbcDEeFIiJLlmOoPpQRSWw")
"""ssh's options that are followed by a value (OpenSSH 9, ssh(1))"""
Job = tuple[object, ...]


def problems(source: Source) -> Iterator[SourceProblem]:
    jobs: dict[Job, list[Launch]] = {}
    for launch in source.launches:
        if (job := _job(launch)) is not None:
            jobs.setdefault(job, []).append(launch)
    for nodes in jobs.values():
        first, *others = nodes
        for other in others:
            yield from _number_twice(source, first, other)
        numbers = {_number(launch) for launch in nodes}
        if len(numbers) == len(nodes):
            yield from _ports(first, others)


def _job(launch: Launch) -> Job | None:
    """None for a launch on one machine, or whose number is only known when it runs."""
    if (
        launch.kind not in command_line.TORCHRUN
        or command_line.hides_flags(launch)
        or not launch.script
    ):
        return None
    nodes = command_line.nodes(launch)
    fixed = nodes is not None and nodes[0] == nodes[1] > 1
    static = launch.flag("rdzv-backend", "standalone") is None
    if not fixed or not static or _number(launch) is None:
        return None
    return launch.script, tuple(word.text for word in launch.script_arguments), nodes


def _number(launch: Launch) -> int | None:
    return command_line.number(launch.flag("node-rank"))


def _value(launch: Launch, name: str) -> str | None:
    flag = launch.flag(name)
    return flag.value if flag is not None and flag.known else None


def _ports(first: Launch, others: list[Launch]) -> Iterator[SourceProblem]:
    port = _value(first, "master-port")
    for other in others:
        flag = other.flag("master-port")
        if port is None or flag is None or not flag.known or flag.value == port:
            continue
        yield SourceProblem(
            "error",
            f"node {_number(other)} expects the master on port {flag.value}, node "
            f"{_number(first)} (line {first.place.line}) on {port}",
            "all nodes of a job use one master port; with two they wait for each other until "
            "the timeout",
            f"`--master-port {shell_words.word(port, 'PORT')}` on every node",
            flag.place,
        )


def _number_twice(source: Source, first: Launch, other: Launch) -> Iterator[SourceProblem]:
    flag = other.flag("node-rank")
    same = ("master-addr", "master-port")
    if flag is None or _number(first) != _number(other):
        return
    if any(_value(first, name) != _value(other, name) for name in same):
        return
    here, there = (_machine(source, launch) for launch in (first, other))
    if here and there and here != there:
        yield SourceProblem(
            "error",
            f"{here} (line {first.place.line}) and {there} are both --node-rank {flag.value}",
            "each node of a job needs its own rank; the job waits for the missing one until the "
            "timeout",
            "number the nodes from 0: `--node-rank 0` on the master, `--node-rank 1` on the next",
            flag.place,
        )


def _machine(source: Source, launch: Launch) -> str:
    """The host that ssh carries it to, the container, the compose service or the workload of
    Kubernetes; '' where the text does not tell."""
    if source.kind is SourceKind.YAML:
        around = [one for one in source.workloads if one.place.line <= launch.place.line]
        return around[-1].name if around else ""
    if source.kind is SourceKind.COMPOSE:
        inside = (one for one in source.containers if one.place.line <= launch.place.line)
        return next((one.service for one in reversed(list(inside))), "")
    for container in source.containers:
        name = container.option("name")
        if (
            name is not None
            and name.known
            and containers.launch_inside(source, container) is launch
        ):
            return name.value
    number = launch.command.number - 1 if launch.command and "ssh" in launch.around else -1
    carrier = next((c for c in source.commands if c.number == number and c.name == "ssh"), None)
    named = command_line.arguments(carrier.words, SSH_VALUES)[:1] if carrier else []
    return named[0].text if named and named[0].known else ""
