"""Kubernetes manifests and Accelerate's configuration -> Source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from holdfast.analysis.source.source import (
    ContainerRun,
    Flag,
    Launch,
    Source,
    SourceKind,
    SourceSetting,
)
from holdfast.lint.readers import shell, workloads
from holdfast.lint.readers.compose import env, flag, run
from holdfast.lint.readers.shell.nested_text import FileText
from holdfast.lint.readers.shell.shell_reading import ShellReading
from holdfast.lint.readers.yaml_nodes import YamlDocuments, filled

if TYPE_CHECKING:
    from yaml.nodes import Node

ACCELERATE = frozenset(["compute_environment", "distributed_type", "num_processes", "num_machines"])
"""keys of Accelerate's configuration; two of them make one"""
YES = ("true", "yes", "on")


def read(
    text: str, file: str, *, first_line: int = 1, indent: int = 0, complete: bool = True
) -> Source:
    """Never fails: what is no YAML, or concerns none of us, holds nothing."""
    ground = FileText(text, file, first_line=first_line, indent=indent)
    if not any(key in text for key in ("containers", "TrainJob", "Service", *ACCELERATE)):
        return Source(file=file, kind=SourceKind.YAML, complete=complete)
    documents = YamlDocuments(ground)
    reading = ShellReading()
    pods: dict[int, tuple[ContainerRun, ...]] = {}
    for root in documents.roots:
        if len(ACCELERATE & {str(key.value) for key, _ in documents.pairs(root)}) > 1:
            reading.jobs.append(_accelerate(documents, root))
        for pod in _pods(documents, root):
            pods[id(pod)] = tuple(_containers(documents, pod, reading))
        for job in workloads.resources(documents, root):
            trainer = documents.get(job, "spec", "trainer")
            if trainer is not None and documents.scalar(job, "kind") == "TrainJob":
                pods[id(trainer)] = (_container(documents, trainer, [], reading),)
    containers = tuple(container for group in pods.values() for container in group)
    found = shell.source(reading, file, SourceKind.YAML, complete=complete, containers=containers)
    kinds = [one for root in documents.roots for one in workloads.resources(documents, root)]
    told = [workloads.workload(documents, one, pods) for one in kinds]
    services = [workloads.service(documents, one) for one in kinds]
    return msgspec.structs.replace(
        found,
        workloads=tuple(one for one in told if one is not None),
        services=tuple(one for one in services if one is not None),
        refused=documents.problem if complete else None,
    )


def _accelerate(documents: YamlDocuments, root: Node) -> Launch:
    flags: list[Flag] = []
    for key, value in documents.pairs(root):
        inside = documents.pairs(value) if value.id == "mapping" else [(key, value)]
        for name, one in inside:
            if one.id == "scalar" and one.tag != "tag:yaml.org,2002:null":
                dashed = str(name.value).replace("_", "-")
                flags.append(flag(documents, name, dashed, str(one.value)))
    return Launch(kind="accelerate", flags=tuple(flags), place=documents.place(root))


def _pods(documents: YamlDocuments, root: Node) -> Iterator[Node]:
    """Mappings with `containers`, wherever a manifest hides its pod template."""
    waiting, seen = [root], {id(root)}
    while waiting:
        node = waiting.pop()
        if node.id == "scalar":
            continue
        if not documents.asked(node):
            return
        children = [v for _, v in node.value] if node.id == "mapping" else list(node.value)
        if node.id == "mapping" and any(k.value == "containers" for k, _ in node.value):
            yield node
        fresh = [child for child in children if id(child) not in seen]
        seen.update(map(id, fresh))
        waiting.extend(reversed(fresh))


def _containers(
    documents: YamlDocuments, pod: Node, reading: ShellReading
) -> Iterator[ContainerRun]:
    shared = list(_host(documents, pod))
    for container in documents.items(documents.get(pod, "containers")):
        if container.id == "mapping":
            yield _container(documents, container, shared, reading)


def _container(
    documents: YamlDocuments, container: Node, shared: list[Flag], reading: ShellReading
) -> ContainerRun:
    settings = list(_environment(documents, container))
    reading.settings.extend(settings)
    run(documents, container, ("command", "args"), settings, reading)
    nodes = (documents.get(container, key) for key in ("command", "args"))
    fields = [field for node in nodes if node is not None for field in documents.words(node)]
    return ContainerRun(
        engine="kubernetes",
        options=(*shared, *_own(documents, container), *map(env, settings)),
        place=documents.place(container),
        image=documents.scalar(container, "image"),
        words=tuple(shell.word(field, documents.ground) for field in fields if field),
        service=documents.scalar(container, "name"),
        ends=documents.end(container),
    )


def _host(documents: YamlDocuments, pod: Node) -> Iterator[Flag]:
    for key, value in documents.pairs(pod):
        name = {"hostNetwork": "network", "hostIPC": "ipc", "hostPID": "pid"}.get(str(key.value))
        if name and value.id == "scalar" and str(value.value).lower() in YES:
            yield flag(documents, key, name, "host")
    for entry in documents.items(documents.get(pod, "securityContext", "sysctls")):
        name, value = documents.get(entry, "name"), documents.scalar(entry, "value")
        if name is not None and name.id == "scalar":
            yield flag(documents, name, "sysctl", f"{name.value}={value}")


def _own(documents: YamlDocuments, container: Node) -> Iterator[Flag]:
    asked = documents.get(container, "resources") or documents.get(container, "resourcesPerNode")
    for key, value in documents.pairs(documents.get(asked, "limits")):
        if str(key.value).endswith("/gpu") and value.id == "scalar":
            yield flag(documents, key, "gpus", str(value.value))
    for mount in documents.items(documents.get(container, "volumeMounts")):
        path = documents.get(mount, "mountPath")
        if path is not None and path.id == "scalar":
            yield flag(documents, path, "volume", str(path.value))
    for key, value in documents.pairs(documents.get(container, "securityContext")):
        if key.value == "privileged" and str(value.value).lower() in YES:
            yield flag(documents, key, "privileged", "")


def _environment(documents: YamlDocuments, container: Node) -> Iterator[SourceSetting]:
    """`valueFrom` is only known in the cluster."""
    for entry in documents.items(documents.get(container, "env")):
        name, value = documents.get(entry, "name"), documents.get(entry, "value")
        if name is not None and value is not None and value.id == name.id == "scalar":
            text, known = filled(str(value.value))
            yield SourceSetting(
                name=str(name.value),
                value=text,
                place=documents.place(name),
                known=known,
                written=str(value.value),
                by="kubernetes",
            )
