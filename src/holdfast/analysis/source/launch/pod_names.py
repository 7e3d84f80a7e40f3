"""Names by which the pods of a manifest are to find their master, and whether they exist.

A pod has a name of its own in DNS only below a headless service: `trainer-0.trainer`, where
`trainer` is the serviceName of a StatefulSet, or the subdomain in the pod of an Indexed Job.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.analysis.source.launch import command_line, containers, master
from holdfast.analysis.source.source import (
    Launch,
    NetworkService,
    PodGroup,
    Source,
    Workload,
)
from holdfast.analysis.source.source_problem import SourceProblem
from holdfast.findings import Place


class PodMaster(NamedTuple):
    """Where a pod looks for its master."""

    host: str
    port: int | None
    place: Place
    group: PodGroup
    workload: Workload

    @property
    def labels(self) -> list[str]:
        return self.host.split(".")


def problems(source: Source) -> Iterator[SourceProblem]:
    services = {service.name: service for service in source.services}
    for one in _masters(source):
        yield from _of_a_pod(one, services)
        service = services.get(one.labels[0])
        if service is not None:
            yield from _of_a_service(one, service)
        if one.group.dns_of_the_node and (service is not None or _pod(one) is not None):
            yield _without_cluster_dns(one)


def _masters(source: Source) -> Iterator[PodMaster]:
    for workload in source.workloads:
        for group in workload.groups:
            for container in group.containers:
                launch = containers.launch_inside(source, container)
                found = list(master.addresses(launch)) if launch is not None else []
                for said in found:
                    port = _port(said.launch, said.what)
                    yield PodMaster(said.value, port, said.place, group, workload)
                given = containers.variable(container, "MASTER_ADDR")
                if given is not None and given.known and not found:
                    port = command_line.number(containers.variable(container, "MASTER_PORT"))
                    yield PodMaster(given.value, port, given.place, group, workload)


def _port(launch: Launch | None, what: str) -> int | None:
    """Of the option that named the host."""
    if launch is None:
        return None
    if what == "--rdzv-endpoint":
        endpoint = launch.flag("rdzv-endpoint")
        return command_line.endpoint(endpoint.value)[1] if endpoint is not None else None
    return command_line.number(launch.flag(*master.PORT_FLAGS))


def _pod(one: PodMaster) -> int | None:
    """The number of the pod of this workload that the address names; None where it names none."""
    name, kind = re.escape(one.workload.name), one.workload.kind
    if not one.workload.name or kind not in ("StatefulSet", "Job", "JobSet"):
        return None
    middle = f"-{re.escape(one.group.name)}-\\d+" if kind == "JobSet" else ""
    found = re.fullmatch(rf"{name}{middle}-(\d{{1,6}})", one.labels[0])
    return int(found[1]) if found else None


def _of_a_pod(one: PodMaster, services: dict[str, NetworkService]) -> Iterator[SourceProblem]:
    number, count = _pod(one), one.group.count
    if number is None:
        return
    below = one.labels[1] if len(one.labels) > 1 else ""
    subdomain = one.group.subdomain or one.workload.subdomain
    if one.workload.kind != "JobSet" and count is not None and number >= count:
        yield _problem(
            one,
            "error",
            f"{one.host} does not exist: the {count} pods end with -{count - 1}",
            "pods are numbered from 0",
        )
    elif not below and count != 1:
        yield _problem(
            one,
            "warning",
            f"{one.host} is a name without a service: other pods cannot resolve it",
            "in DNS a pod has a name only below its headless service",
        )
    elif below and subdomain and below != subdomain:
        yield _problem(
            one,
            "error",
            f"{one.host} does not exist: the pods are named below {subdomain}",
            "the second part of the name is the "
            + ("serviceName" if one.workload.kind == "StatefulSet" else "subdomain"),
        )
    elif below and not subdomain:
        yield _problem(
            one,
            "warning",
            f"{one.host} does not exist: the pods have no subdomain",
            "the pod template needs a `subdomain`, and the job `completionMode: Indexed`",
        )
    elif (service := services.get(below)) is not None and not service.headless:
        yield _problem(
            one,
            "error",
            f"{one.host} does not exist: the service {below} is not headless",
            "only a service with `clusterIP: None` gives each of its pods a name",
        )


def _problem(one: PodMaster, status: str, summary: str, reason: str) -> SourceProblem:
    wait = "every node waits for the master until the timeout"
    fix = "name pod 0 below its headless service: `NAME-0.SERVICE`; `kubectl exec POD -- getent "
    return SourceProblem(status, summary, f"{reason}; {wait}", f"{fix}hosts NAME`", one.place)


def _of_a_service(one: PodMaster, service: NetworkService) -> Iterator[SourceProblem]:
    """A service that is not headless passes on the ports it lists, and no others."""
    if service.headless or one.port is None or not service.ports or one.port in service.ports:
        return
    listed = ", ".join(map(str, service.ports))
    yield SourceProblem(
        "error",
        f"the service {service.name} passes on port {listed}, not the master's port {one.port}",
        f"it is not headless, so connections to {service.name}:{one.port} are refused or dropped",
        f"add `port: {one.port}` to its ports ({_where(one, service)}), or make it headless: "
        "`clusterIP: None`",
        one.place,
    )


def _where(one: PodMaster, service: NetworkService) -> str:
    there = service.place
    return f"line {there.line}" if there.file == one.place.file else f"{there.file}:{there.line}"


def _without_cluster_dns(one: PodMaster) -> SourceProblem:
    return SourceProblem(
        "error",
        f"{one.host} is a name of the cluster, and the pods ask the DNS of their node",
        "with hostNetwork a pod uses its node's resolver unless dnsPolicy says otherwise; it does "
        "not know the names of services and pods",
        "add `dnsPolicy: ClusterFirstWithHostNet` beside `hostNetwork: true`",
        one.place,
    )
