from __future__ import annotations

import msgspec

from holdfast import catalogue
from holdfast.analysis.machine import Container, Unread
from holdfast.analysis.nodes import NodesFacts
from holdfast.catalogue import by_slug
from tests.analysis.source.made_sources import compose, shell
from tests.faults.machines import a_loopback, a_machine, a_plan, an_interface
from tests.faults.made_nodes import path, some_nodes, untried
from tests.faults.table import (
    check_table,
    flags,
    leaves,
    lint_table,
    not_applicable,
    silent,
    skips,
    speaks,
)

TWO_NODES = a_plan(min_nodes=2, max_nodes=2)
BRIDGED = (a_loopback(), an_interface("eth0", "172.17.0.2", kind="veth"))


def inside(kind: str = "docker", network: str = "own", rootless: bool | None = False) -> Container:
    return Container(kind=kind, sign="/.dockerenv", rootless=rootless, network=network, ipc="own")


test_check = check_table(
    "container-network",
    speaks(
        "warning",
        a_machine(TWO_NODES, container=inside(), interfaces=BRIDGED),
        saying=[
            "this docker container has its own network",
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

INSIDE = "torchrun --nnodes 2 --node-rank $R --master-addr 10.0.0.1 --master-port 29500 x.py"
APART = """
services:
  first:
    image: trainer
    environment:
      MASTER_ADDR: localhost
      RANK: "0"
  second:
    image: trainer
    {}
    environment:
      - MASTER_ADDR=first
      - RANK=1
"""

test_lint = lint_table(
    "container-network",
    flags(
        "warning",
        shell(f"docker run --gpus all --ipc=host -p 29500:29500 trainer {INSIDE}\n"),
        lines=[1],
        saying=["2 machines", "172.17.0.2", "`docker run --network=host …`"],
    ),
    flags(
        "error",
        compose(APART.format("restart: no")),
        lines=[5],
        saying=["each container's own loopback", "MASTER_ADDR: first"],
    ),
    flags(
        "note",
        shell(
            """
            export DOCKER_HOST=unix:///run/user/1000/docker.sock
            docker run --network=host trainer torchrun x.py
            """
        ),
        lines=[2],
        saying=["Engine 29.5"],
    ),
    flags(
        "error",
        shell(
            """
            docker run -d -e RANK=0 -e MASTER_ADDR=127.0.0.1 trainer python x.py
            docker run -d -e RANK=1 -e MASTER_ADDR=127.0.0.1 trainer python x.py
            """
        ),
        lines=[1, 2],
        saying=["2 containers form one job", "docker network create"],
    ),
    leaves(shell("docker run -e RANK=0 -e MASTER_ADDR=localhost trainer python x.py\n")),
    leaves(shell(f"docker run --network=host --ipc=host trainer {INSIDE}\n")),
    leaves(shell(f"docker run --network=training-overlay trainer {INSIDE}\n")),
    leaves(shell("docker run --gpus all trainer torchrun --nproc-per-node 8 x.py\n")),
    leaves(shell(f"docker run trainer {INSIDE.replace('10.0.0.1', '172.17.0.2')}\n")),
    leaves(compose(APART.format("network_mode: service:first"))),
    leaves(compose(APART.replace("localhost", "first").format("restart: no"))),
    flags(
        "warning",
        compose(f"services:\n  rank:\n    image: trainer:2\n    command: {INSIDE}\n"),
        lines=[2],
        saying=["2 machines", "Docker's bridge", "`network_mode: host`"],
    ),
    *(
        leaves(compose(f"services:\n  rank:\n    image: trainer:2\n    {more}\n"))
        for more in (
            f"network_mode: host\n    command: {INSIDE}",
            f"networks: [overlay]\n    command: {INSIDE}",
            f"command: {INSIDE.replace('10.0.0.1', 'rank')}",
            f"command: {INSIDE.replace('--nnodes 2', '--nnodes 1')}",
        )
    ),
)


def test_nodes_that_reach_each_other_refute_the_guess_of_one() -> None:
    guess = by_slug("container-network").ask_check(a_machine(TWO_NODES, container=inside()))
    healthy = some_nodes(3)
    guessed = msgspec.structs.replace(
        healthy,
        nodes=tuple(msgspec.structs.replace(n, findings=tuple(guess)) for n in healthy.nodes),
    )
    blocked = path(guessed, "node-a", "node-b")

    def said(facts: NodesFacts) -> list[str]:
        return [f.slug for f in catalogue.check_nodes(facts, [by_slug("container-network")])]

    assert said(guessed) == []
    assert said(blocked) == ["container-network"] * 2, "nothing refutes it at either end"
    assert said(untried(guessed, "node-a", "node-b")) == ["container-network"] * 2
