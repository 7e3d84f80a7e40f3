"""The container has a network of its own that other machines cannot reach.

What you see   All containers start, then wait: `k/n clients joined`, or NCCL retries `connect` to
               an address like 172.17.0.2 for a minute and fails. On one machine everything works.
Why            Docker and Podman give a container a private address behind the host's. Rank 0 and
               NCCL announce that address to peers on other machines, where it means nothing, and
               NCCL listens on ports that nobody published. Rootless containers go through a
               user-mode network besides, which is slow. Pods in Kubernetes have addresses of their
               own too, but the cluster routes them.
How to be sure `ip -br addr` inside: 172.17.x.x is Docker's default bridge. From another machine
               `nc -zv ADDRESS PORT`. holdfast compares the network namespace and interfaces with
               what a host has; an overlay or macvlan network that does reach the peers looks the
               same to it.
Fix            `docker run --network=host` (Podman: the same). Rootless Docker honours that only
               from Engine 29.5; before, 'host' was RootlessKit's own namespace. Kubernetes:
               `hostNetwork: true` if the pod network is too slow.
Sources        https://docs.docker.com/engine/security/rootless/troubleshoot/
               https://docs.docker.com/engine/network/drivers/host/
               NVIDIA/nccl docs/userguide/source/troubleshooting/networking_troubleshooting.rst
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.analysis.machine import Container, Interface, MachineFacts, known
from holdfast.analysis.source.launch import containers, questions
from holdfast.analysis.source.source import Container as Started
from holdfast.analysis.source.source import Launch, Source
from holdfast.fault import Fault
from holdfast.findings import Evidence, Finding

FAULT = Fault(code="HOLD408", slug="container-network")

ROUTED = {"kubernetes", "lxc"}
"""containers whose own addresses other machines can usually reach"""


@FAULT.check(needs=("container", "interfaces"))
def peers_cannot_reach_it(facts: MachineFacts) -> Finding:
    container = known(facts.container)
    if not container.kind:
        return FAULT.does_not_apply("not in a container")
    if not facts.plan.multi_node:
        return FAULT.ok(f"one machine: ranks in one {container.kind} container reach each other")
    if container.network == "host":
        return _host_network(container)
    if container.network != "own":
        return FAULT.skipped(f"cannot tell which network this {container.kind} container has")
    if container.kind in ROUTED:
        return FAULT.ok(f"{container.kind} gives it an address that others can usually reach")
    return _own_network(facts, container)


def _host_network(container: Container) -> Finding:
    if container.kind == "docker" and container.rootless:
        return FAULT.note(
            "rootless Docker with the host's network, as far as can be seen from inside",
            reason="before Engine 29.5 'host' meant RootlessKit's own namespace, which other "
            "machines cannot reach",
            evidence=[Evidence(quote="rootless docker", source=container.sign)],
            fix="`docker version` on the host must say 29.5 or newer",
        )
    return FAULT.ok(f"the {container.kind} container uses the host's network")


def _own_network(facts: MachineFacts, container: Container) -> Finding:
    speak = FAULT.error if container.rootless else FAULT.warning
    interfaces = facts.interfaces if isinstance(facts.interfaces, tuple) else ()
    return speak(
        f"this {'rootless ' if container.rootless else ''}{container.kind} container has a network "
        "of its own",
        reason="its ranks will announce an address that the other machines cannot reach"
        + ("" if container.rootless else ", unless it is an overlay or macvlan network"),
        evidence=[
            Evidence(quote=f"{container.kind}, own network namespace", source=container.sign),
            *(_address(i) for i in interfaces if i.kind != "loopback" and i.addresses),
        ],
        fix="start it with `--network=host`"
        + (" (rootless Docker: Engine 29.5 or newer)" if container.rootless else ""),
    )


def _address(interface: Interface) -> Evidence:
    addresses = " ".join(f"{a.ip}/{a.prefix}" for a in interface.addresses)
    return Evidence(quote=f"{interface.name} has {addresses}", source="ip -br addr")


# --- in what a user wrote ------------------------------------------------------------------------


ENGINES = ("docker", "podman")


@FAULT.lint
def others_cannot_reach_what_it_starts(source: Source) -> Iterator[Finding]:
    for container in source.containers:
        if container.engine not in (*ENGINES, "compose"):
            continue
        if not containers.has_own_bridge(container) or containers.hides_options(source, container):
            continue
        launch = containers.launch_inside(source, container)
        if launch is None or (launch.machines or 1) < 2 or _is_next_door(source, launch):
            continue
        compose = container.engine == "compose"
        engine = "Docker" if compose else container.engine
        yield FAULT.warning(
            f"{launch.machines} machines, and a container on {engine}'s bridge",
            reason="its ranks will announce an address such as 172.17.0.2, which exists on its own "
            "machine only; publishing the master port is not enough: NCCL and Gloo listen on more",
            fix="`network_mode: host`" if compose else f"`{container.engine} run --network=host …`",
            at=container.place,
        )


def _is_next_door(source: Source, launch: Launch) -> bool:
    """The master is a container of the same machine, which the bridge does join."""
    master = launch.flag("master-addr", "rdzv-endpoint", "main-process-ip")
    if master is None:
        return False
    services = {container.service for container in source.containers} - {""}
    return master.value.startswith("172.") or questions.endpoint(master.value)[0] in services


@FAULT.lint
def loopback_is_the_containers_own(source: Source) -> Iterator[Finding]:
    """Containers of one piece that are to form one job."""
    apart = [c for c in source.containers if c.engine in (*ENGINES, "compose")]
    members = [c for c in apart if containers.stands_alone(c) and containers.is_member(c)]
    if len(members) < 2:
        return
    for container in members:
        address = containers.variable(container, "MASTER_ADDR")
        if address is not None and questions.is_loopback(address.value):
            yield FAULT.error(
                f"MASTER_ADDR={address.value} is each container's own loopback",
                reason=f"{len(members)} containers are to form one job, and each has a network of "
                "its own: every one would wait for itself",
                fix=f"name the service of rank 0: `MASTER_ADDR: {_first(members).service}`"
                if container.engine == "compose"
                else "`--network=host` for all; or a network of theirs (`docker network create "
                "job`) and the name of the first: `--network job -e MASTER_ADDR=NAME`",
                at=address.place,
            )


def _first(members: list[Started]) -> Started:
    ranks = [(containers.variable(c, "RANK", "NODE_RANK"), c) for c in members]
    return next((c for rank, c in ranks if rank and rank.value == "0"), members[0])


@FAULT.lint
def host_means_rootlesskits_network(source: Source) -> Iterator[Finding]:
    socket = source.setting("DOCKER_HOST")
    if socket is None or not socket.value.startswith("unix:///run/user/"):
        return
    for container in source.containers:
        network = container.option("network")
        if container.engine == "docker" and network is not None and network.value == "host":
            yield FAULT.note(
                "rootless Docker: --network=host is the host's network from Engine 29.5 on only",
                reason="before, 'host' meant RootlessKit's own namespace, which other machines "
                "cannot reach",
                fix="`docker version` must say 29.5 or newer",
                at=network.place,
            )
