"""The hosts and settings with which `tools.nccl_choice` asks a real NCCL."""

from __future__ import annotations

import random
from typing import NamedTuple


class MadeInterface(NamedTuple):
    name: str
    addresses: tuple[str, ...]
    """'10.0.0.5/24', or '10.9.0.5/24 eth0:1' with a label"""
    kind: str = "veth"
    """'veth' or 'bridge' (without ports: it never has a carrier)"""
    carrier: bool = True
    ifindex: int = 0
    """0: the next"""


class MadeHost(NamedTuple):
    name: str
    interfaces: tuple[MadeInterface, ...]
    """made in this order, which is that of their index; lo is there before them"""
    settings: tuple[dict[str, str], ...]
    loopback: bool = True
    """lo is up"""


def named(*values: str) -> tuple[dict[str, str], ...]:
    return tuple({"NCCL_SOCKET_IFNAME": value} for value in values)


def an(name: str, *addresses: str, kind: str = "veth", carrier: bool = True) -> MadeInterface:
    return MadeInterface(name, addresses, kind, carrier)


NOTHING: dict[str, str] = {}
ETH0, ETH1 = an("eth0", "10.0.0.5/24"), an("eth1", "10.1.0.5/24")
DOCKER = an("docker0", "172.17.0.1/16")
IPV6 = {"NCCL_SOCKET_FAMILY": "AF_INET6"}
IPV4 = {"NCCL_SOCKET_FAMILY": "AF_INET"}

HOSTS = (
    MadeHost(
        "two cards",
        (ETH0, ETH1),
        (
            NOTHING,
            *named(
                "eth1", "=eth1", "=eth0,=eth1", "=eth1,=eth0", "^eth0", "^lo,eth0", "e", "nope0"
            ),
            *named("eth", ",eth1", "eth1:1", "^=eth", "lo", "==eth0", "eth1 ,eth0"),
            {"NCCL_SOCKET_FAMILY": "ipv6"},
            {"NCCL_COMM_ID": "10.1.0.5:41234"},
            {"NCCL_COMM_ID": "10.1.0.5:41234", "NCCL_SOCKET_IFNAME": "=eth0"},
            {"NCCL_COMM_ID": "192.0.2.1:41234"},
            {"NCCL_COMM_ID": ""},
        ),
    ),
    MadeHost("docker", (DOCKER, ETH0), (NOTHING, *named("^docker0", "^docker,lo", "docker"))),
    MadeHost(
        "docker without carrier",
        (an("docker0", "172.17.0.1/16", kind="bridge"), ETH0),
        (
            NOTHING,
            *named("docker0", "^lo"),
        ),
    ),
    MadeHost("only docker", (DOCKER,), (NOTHING,)),
    MadeHost(
        "ib",
        (ETH0, an("ib0", "10.8.0.5/24"), an("ib1", "10.8.1.5/24")),
        (
            NOTHING,
            *named("eth"),
            {"NCCL_COMM_ID": "10.0.0.5:41234"},
        ),
    ),
    MadeHost("virbr", (an("virbr0", "192.168.122.1/24"), ETH0), (NOTHING,)),
    MadeHost("only virbr", (an("virbr0", "192.168.122.1/24"),), (NOTHING,)),
    MadeHost(
        "bridges",
        (an("br-1", "172.18.0.1/16"), an("veth1", "10.88.0.1/24"), ETH0),
        (
            NOTHING,
            *named("^br,veth,lo"),
        ),
    ),
    MadeHost(
        "no carrier",
        (an("eth0", "10.0.0.5/24", carrier=False), ETH1),
        (
            NOTHING,
            *named("eth0", "=eth0,eth1"),
            {"NCCL_COMM_ID": "10.0.0.5:41234"},
        ),
    ),
    MadeHost(
        "IPv6 only first",
        (an("tun0", "2001:db8::5/64"), ETH0),
        (
            NOTHING,
            IPV6,
            IPV4,
            *named("tun0"),
            IPV4 | {"NCCL_SOCKET_IFNAME": "tun0"},
            {"NCCL_COMM_ID": "[2001:db8::5]:41234"},
        ),
    ),
    MadeHost("both families", (an("eth0", "10.0.0.5/24", "2001:db8:1::5/64"),), (NOTHING, IPV6)),
    MadeHost(
        "several addresses",
        (
            an("eth0", "10.0.0.5/24", "10.0.0.6/24", "10.9.0.5/24 eth0:1"),
            ETH1,
        ),
        (NOTHING, *named("eth0:1", "=eth0")),
    ),
    MadeHost("no address", (an("eth0"), ETH1), (NOTHING, *named("eth0"))),
    MadeHost("only lo", (), (NOTHING, *named("lo", "^docker0"))),
    MadeHost("lo down", (), (NOTHING,), loopback=False),
    MadeHost("eighteen", tuple(an(f"eth{n}", f"10.{n}.0.5/24") for n in range(18)), (NOTHING,)),
)


def made_up(count: int, seed: int) -> tuple[MadeHost, ...]:
    """Random hosts and settings, beside the designed ones."""
    dice = random.Random(seed)
    return tuple(_made_up(dice, f"made up {seed}.{number}") for number in range(count))


NAMES = ("eth0", "eth1", "eth10", "ib0", "ibp1", "docker0", "docker_gw", "virbr0", "virbr0-nic",
         "br-1", "veth1", "tun0", "lowpan0", "bond0", "cni0", "enp1s0", "en", "l0")  # fmt: skip


def _made_up(dice: random.Random, name: str) -> MadeHost:
    chosen = dice.sample(NAMES, dice.randint(0, 6))
    indices = dice.sample(range(2, 900), len(chosen))
    made = tuple(
        MadeInterface(
            one,
            tuple(_addresses(dice, number, one)),
            carrier=dice.random() < 0.8,
            ifindex=index,
        )
        for number, (one, index) in enumerate(zip(chosen, indices, strict=True))
    )
    settings = tuple(_settings(dice, chosen, made) for _ in range(6))
    return MadeHost(name, made, settings, loopback=dice.random() < 0.9)


def _addresses(dice: random.Random, number: int, name: str) -> list[str]:
    every = [
        f"10.{number}.0.5/24",
        f"10.{number}.0.6/24",
        f"10.{100 + number}.0.5/16 {name[:12]}:1",
        f"2001:db8:{number}::5/64",
    ]
    return [one for one in every if dice.random() < 0.5]


def _settings(
    dice: random.Random, names: list[str], made: tuple[MadeInterface, ...]
) -> dict[str, str]:
    setting: dict[str, str] = {}
    pieces = [*names, "lo", "eth", "docker", "e", "", "nope", "=eth0", "^lo", "eth0:1", "lo "]
    if dice.random() < 0.7:
        sign = dice.choice(["", "", "=", "^", "^=", "=^"])
        setting["NCCL_SOCKET_IFNAME"] = sign + ",".join(dice.sample(pieces, dice.randint(1, 3)))
    if dice.random() < 0.3:
        setting["NCCL_SOCKET_FAMILY"] = dice.choice(["AF_INET", "AF_INET6", "AF_INET4"])
    if dice.random() < 0.2:
        own = [text.partition("/")[0] for one in made for text in one.addresses]
        address = dice.choice([*own, "127.0.0.1", "192.0.2.7"])
        setting["NCCL_COMM_ID"] = f"[{address}]:4123" if ":" in address else f"{address}:4123"
    return setting
