"""What a Kubernetes manifest runs, how often, and under which names: workloads and services."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from holdfast.analysis.source.source import (
    ContainerRun,
    NetworkService,
    PodGroup,
    Workload,
)
from holdfast.lint.readers.yaml_nodes import YamlDocuments, filled

if TYPE_CHECKING:
    from yaml.nodes import Node

Pods = Mapping[int, tuple[ContainerRun, ...]]
"""containers of each pod, by the id of its node"""
REPLICATED = frozenset({"StatefulSet", "Deployment", "ReplicaSet"})
YES = ("true", "yes", "on")


class _Count(NamedTuple):
    """`replicas: 4`, and where that is; None where it is only known in the cluster."""

    value: int | None
    node: Node | None = None


def resources(documents: YamlDocuments, root: Node) -> Iterator[Node]:
    """The resources of a document: itself, or the items of a list."""
    if documents.scalar(root, "kind") == "List":
        yield from documents.items(documents.get(root, "items"))
    else:
        yield root


def service(documents: YamlDocuments, resource: Node) -> NetworkService | None:
    if documents.scalar(resource, "kind") != "Service":
        return None
    name, known = filled(documents.scalar(resource, "metadata", "name"))
    spec = documents.get(resource, "spec")
    listed = documents.items(documents.get(spec, "ports"))
    ports = [documents.scalar(port, "port") for port in listed]
    if not known or not name or not all(port.isdecimal() and len(port) < 7 for port in ports):
        return None
    return NetworkService(
        name=name,
        headless=documents.scalar(spec, "clusterIP") == "None",
        ports=tuple(map(int, ports)),
        place=documents.place(documents.get(resource, "spec", "ports") or resource),
    )


def workload(documents: YamlDocuments, resource: Node, pods: Pods) -> Workload | None:
    """None where nothing of it is a pod."""
    kind = documents.scalar(resource, "kind")
    if kind == "Job" and documents.get(resource, "spec", "tasks") is not None:
        kind = "Volcano Job"
    name, known = filled(documents.scalar(resource, "metadata", "name"))
    spec = documents.get(resource, "spec")
    groups = tuple(
        one
        for label, count, template in _templates(documents, kind, spec)
        if (one := _group(documents, label, count, template, pods)) is not None
    )
    if not groups:
        return None
    return Workload(
        kind=kind,
        name=name if known else "",
        groups=groups,
        subdomain=_subdomain(documents, kind, name if known else "", spec),
        place=documents.place(resource),
        scaled=documents.get(spec, "elasticPolicy") is not None,
    )


def _templates(
    documents: YamlDocuments, kind: str, spec: Node | None
) -> Iterator[tuple[str, _Count, Node | None]]:
    """(name, how many pods at a time, pod) of each part of a workload."""
    template = _template(documents, spec)
    if kind == "Pod":
        yield "", _Count(1), spec
    elif kind == "Job":
        yield "", _parallel(documents, spec), template
    elif kind in REPLICATED:
        yield "", _count(documents, spec, "replicas"), template
    elif kind == "TrainJob":
        trainer = documents.get(spec, "trainer")
        count = _count(documents, trainer, "numNodes")
        yield "", count if count.node is not None else _Count(None), trainer
    else:
        yield from _parts(documents, kind, spec)


def _parts(
    documents: YamlDocuments, kind: str, spec: Node | None
) -> Iterator[tuple[str, _Count, Node | None]]:
    """Of workloads with several templates."""
    if kind == "Volcano Job":
        for task in documents.items(documents.get(spec, "tasks")):
            label = documents.scalar(task, "name")
            yield label, _count(documents, task, "replicas"), _template(documents, task)
    elif kind == "JobSet":
        for job in documents.items(documents.get(spec, "replicatedJobs")):
            inner = documents.get(job, "template", "spec")
            count = _times(_count(documents, job, "replicas"), _parallel(documents, inner))
            yield documents.scalar(job, "name"), count, _template(documents, inner)
    elif kind == "PyTorchJob":
        for key, part in documents.pairs(documents.get(spec, "pytorchReplicaSpecs")):
            label, count = str(key.value), _count(documents, part, "replicas")
            yield label, count, _template(documents, part)


def _template(documents: YamlDocuments, node: Node | None) -> Node | None:
    return documents.get(node, "template", "spec")


def _count(documents: YamlDocuments, node: Node | None, key: str) -> _Count:
    """One where it is not said."""
    found = documents.get(node, key)
    if found is None:
        return _Count(1)
    said = str(found.value) if found.id == "scalar" else ""
    return _Count(int(said) if said.isdecimal() and len(said) < 7 else None, found)


def _parallel(documents: YamlDocuments, spec: Node | None) -> _Count:
    """Pods of a Job at the same time: never more than are still to be completed."""
    parallel = _count(documents, spec, "parallelism")
    completions = _count(documents, spec, "completions")
    if completions.node is None or parallel.value is None or completions.value is None:
        return parallel
    return min(parallel, completions, key=lambda count: count.value or 0)


def _times(one: _Count, other: _Count) -> _Count:
    if one.value is None or other.value is None:
        return _Count(None)
    return _Count(one.value * other.value, other.node or one.node)


def _group(
    documents: YamlDocuments, label: str, count: _Count, pod: Node | None, pods: Pods
) -> PodGroup | None:
    containers = pods.get(id(pod), ())
    if pod is None or not containers:
        return None
    host = documents.scalar(pod, "hostNetwork").lower() in YES
    policy = documents.scalar(pod, "dnsPolicy")
    return PodGroup(
        name=label,
        count=count.value,
        counted=documents.place(count.node) if count.node is not None else None,
        containers=containers,
        subdomain=documents.scalar(pod, "subdomain"),
        dns_of_the_node=policy == "Default" or (host and policy in ("", "ClusterFirst")),
        place=documents.place(pod),
    )


def _subdomain(documents: YamlDocuments, kind: str, name: str, spec: Node | None) -> str:
    """The service under which the pods have names; '' where none is said."""
    if kind == "StatefulSet":
        return filled(documents.scalar(spec, "serviceName"))[0]
    if kind == "JobSet":
        return filled(documents.scalar(spec, "network", "subdomain"))[0] or name
    return ""
