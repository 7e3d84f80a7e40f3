"""The container has its own network that other machines cannot reach.

What you see   All containers start, then wait: `k/n clients joined`, or NCCL retries `connect` to
               an address like 172.17.0.2 for a minute and fails. On one machine everything works.
Why            Docker and Podman give a container a private address behind the host's. Rank 0 and
               NCCL announce that address to peers on other machines, where it is not routable, and
               NCCL listens on ports that are not published. Rootless containers also go through a
               user-mode network, which is slow. Pods in Kubernetes have their own addresses too,
               but the cluster routes them.
How to be sure `ip -br addr` inside: 172.17.x.x is Docker's default bridge. From another machine `nc
               -zv ADDRESS PORT`. holdfast compares the network namespace and interfaces with those
               of a host; an overlay or macvlan network that does reach the peers looks the same to
               it.
Fix            `docker run --network=host` (Podman: the same). Rootless Docker supports that only
               from Engine 29.5; before, 'host' was RootlessKit's own namespace. Kubernetes:
               `hostNetwork: true` if the pod network is too slow.
Known limits   On one machine `check` does not contact the others, so an overlay or macvlan network
               is reported as well; a check of all nodes tries the paths, and says no more of it
               where they work. Lint skips containers whose options come from variables or scripts.
Sources        https://docs.docker.com/engine/security/rootless/troubleshoot/
               https://docs.docker.com/engine/network/drivers/host/
               NVIDIA/nccl docs/userguide/source/troubleshooting/networking_troubleshooting.rst
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast import shell_words
from holdfast.analysis.machine import Container, Interface, MachineFacts, Unread, known
from holdfast.analysis.nodes import Node, NodesFacts, Outcome
from holdfast.analysis.source.launch import command_line, containers
from holdfast.analysis.source.source import ContainerRun as SourceContainer
from holdfast.analysis.source.source import Launch, Source
from holdfast.fault import Fault
from holdfast.findings import Evidence, Finding

FAULT = Fault(
    code="HOLD408",
    slug="container-network",
    related=("container-flags", "peer-unreachable", "wrong-master-address", "loopback-multi-node"),
)

ROUTED = {"kubernetes", "lxc"}
"""containers whose own addresses other machines can usually reach"""


@FAULT.check(needs=("container", "interfaces"))
def container_not_reachable(facts: MachineFacts) -> Finding:
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
        return FAULT.ok(
            f"{container.kind} gives it an address that other machines can usually reach"
        )
    return _own_network(facts, container)


def _host_network(container: Container) -> Finding:
    if container.kind == "docker" and container.rootless:
        return FAULT.note(
            "rootless Docker with the host's network, as seen from inside",
            reason="before Engine 29.5 'host' meant RootlessKit's own namespace, which other "
            "machines cannot reach",
            evidence=[Evidence(quote="rootless docker", source=container.sign)],
            fix="check on the host that `docker version` says 29.5 or newer",
        )
    return FAULT.ok(f"the {container.kind} container uses the host's network")


def _own_network(facts: MachineFacts, container: Container) -> Finding:
    report = FAULT.error if container.rootless else FAULT.warning
    interfaces = facts.interfaces if isinstance(facts.interfaces, tuple) else ()
    return report(
        f"this {'rootless ' if container.rootless else ''}{container.kind} container has its own "
        "network",
        reason="its ranks will announce an address that the other machines cannot reach"
        + ("" if container.rootless else ", unless it is an overlay or macvlan network"),
        evidence=[
            Evidence(quote=f"{container.kind}, own network namespace", source=container.sign),
            *(_address_evidence(i) for i in interfaces if i.kind != "loopback" and i.addresses),
        ],
        fix="start it with `--network=host`"
        + (" (rootless Docker: Engine 29.5 or newer)" if container.rootless else ""),
    )


@FAULT.refuted_by_nodes
def others_reach_the_container(facts: NodesFacts, node: Node) -> bool:
    """Every other node got through to it, and it to every other one."""
    if isinstance(facts.reach, Unread):
        return False
    passed = {(o.source, o.target.node) for o in facts.reach if o.outcome is Outcome.OK}
    others = {other.name for other in facts.nodes} - {node.name}
    every = {pair for other in others for pair in ((node.name, other), (other, node.name))}
    return bool(every) and every <= passed


def _address_evidence(interface: Interface) -> Evidence:
    addresses = " ".join(f"{a.ip}/{a.prefix}" for a in interface.addresses)
    return Evidence(quote=f"{interface.name} has {addresses}", source="ip -br addr")


# --- lint ----------------------------------------------------------------------------------------


ENGINES = ("docker", "podman")


@FAULT.lint
def container_on_bridge(source: Source) -> Iterator[Finding]:
    for container in source.containers:
        if container.engine not in (*ENGINES, "compose"):
            continue
        if not containers.has_own_bridge(container) or containers.hides_options(source, container):
            continue
        launch = containers.launch_inside(source, container)
        if launch is None or (launch.machines or 1) < 2 or _master_on_same_machine(source, launch):
            continue
        compose = container.engine == "compose"
        engine = "Docker" if compose else container.engine
        yield FAULT.warning(
            f"{launch.machines} machines, but a container on {engine}'s bridge network",
            reason="its ranks will announce an address such as 172.17.0.2, which exists on that "
            "machine only; publishing the master port is not enough: NCCL and Gloo listen on "
            "others too",
            fix="`network_mode: host`" if compose else f"`{container.engine} run --network=host …`",
            at=container.place,
        )


def _master_on_same_machine(source: Source, launch: Launch) -> bool:
    """The master is a container of the same machine, which the bridge connects."""
    master = launch.flag("master-addr", "rdzv-endpoint", "main-process-ip")
    if master is None:
        return False
    services = {container.service for container in source.containers} - {""}
    return master.value.startswith("172.") or command_line.endpoint(master.value)[0] in services


@FAULT.lint
def master_is_container_loopback(source: Source) -> Iterator[Finding]:
    """Containers of one file that form one job."""
    isolated = [c for c in source.containers if c.engine in (*ENGINES, "compose")]
    members = [c for c in isolated if containers.stands_alone(c) and containers.is_member(c)]
    if len(members) < 2:
        return
    for container in members:
        address = containers.variable(container, "MASTER_ADDR")
        if address is not None and command_line.is_loopback(address.value):
            yield FAULT.error(
                f"MASTER_ADDR={address.value} is each container's own loopback",
                reason=f"{len(members)} containers form one job, and each has its own network: "
                "every one would wait for itself",
                fix=f"name the service of rank 0: `MASTER_ADDR: "
                f"{shell_words.word(_container_of_rank_0(members).service, 'SERVICE')}`"
                if container.engine == "compose"
                else "use `--network=host` for all; or create a network (`docker network create "
                "job`) and name the container of rank 0: `--network job -e MASTER_ADDR=NAME`",
                at=address.place,
            )


def _container_of_rank_0(members: list[SourceContainer]) -> SourceContainer:
    ranks = [(containers.variable(c, "RANK", "NODE_RANK"), c) for c in members]
    return next((c for rank, c in ranks if rank and rank.value == "0"), members[0])


@FAULT.lint
def rootless_host_network(source: Source) -> Iterator[Finding]:
    socket = source.setting("DOCKER_HOST")
    if socket is None or not socket.value.startswith("unix:///run/user/"):
        return
    for container in source.containers:
        network = container.option("network")
        if container.engine == "docker" and network is not None and network.value == "host":
            yield FAULT.note(
                "rootless Docker: --network=host is the host's network only from Engine 29.5",
                reason="before, 'host' meant RootlessKit's own namespace, which other machines "
                "cannot reach",
                fix="check that `docker version` says 29.5 or newer",
                at=network.place,
            )
