from __future__ import annotations

from holdfast.facts import Container, Unread
from tests.faults.machines import a_loopback, a_machine, a_plan, an_interface
from tests.faults.table import foresee_table, not_applicable, silent, skips, speaks

TWO_NODES = a_plan(min_nodes=2, max_nodes=2)
BRIDGED = (a_loopback(), an_interface("eth0", "172.17.0.2", kind="veth"))


def inside(kind: str = "docker", network: str = "own", rootless: bool | None = False) -> Container:
    return Container(kind=kind, sign="/.dockerenv", rootless=rootless, network=network, ipc="own")


test_foresee = foresee_table(
    "container-network",
    speaks(
        "warning",
        a_machine(TWO_NODES, container=inside(), interfaces=BRIDGED),
        saying=[
            "this docker container has a network of its own",
            "unless it is an overlay or macvlan",
            "eth0 has 172.17.0.2/24",
            "--network=host",
        ],
        not_saying=["29.5", "127.0.0.1"],
    ),
    speaks(
        "error",
        a_machine(TWO_NODES, container=inside(rootless=True), interfaces=BRIDGED),
        saying=["this rootless docker container", "Engine 29.5 or newer"],
    ),
    speaks(
        "warning",
        a_machine(TWO_NODES, container=inside("podman"), interfaces=Unread(why="x")),
        saying=["podman, own network namespace"],
    ),
    speaks(
        "note",
        a_machine(TWO_NODES, container=inside(network="host", rootless=True)),
        saying=["before Engine 29.5", "`docker version`"],
    ),
    silent(a_machine(TWO_NODES, container=inside(network="host"))),
    silent(a_machine(TWO_NODES, container=inside("podman", network="host", rootless=True))),
    silent(a_machine(TWO_NODES, container=inside("kubernetes"))),  # the cluster routes pods
    silent(a_machine(container=inside(rootless=True))),  # one machine
    not_applicable(a_machine(TWO_NODES), saying=["not in a container"]),
    skips(a_machine(TWO_NODES, container=inside(network="unknown")), saying=["cannot tell"]),
    skips(a_machine(TWO_NODES, container=Unread(why="no /proc")), saying=["no /proc"]),
)
