"""Healthy RDMA cards to start from; a test changes the one thing it is about.

a_machine(TWO_NODES, **rails(8))                          # InfiniBand NDR, one card for each GPU
a_machine(TWO_NODES, **rails(8, {3: {"state": "DOWN"}}))  # a port of the fourth is changed
a_machine(TWO_NODES, **of(a_roce_port("mlx5_0")))
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.analysis.machine import Gid, RdmaCard, RdmaPort
from tests.faults.machines import software

LINK_LOCAL = "fe80:0000:0000:0000:a288:c2ff:fe00:0001"
PREFIX = "fe80:0000:0000:0000"
NDR, HDR = "400 Gb/sec (4X NDR)", "200 Gb/sec (4X HDR)"
replace = msgspec.structs.replace


def an_ib_port(device: str = "mlx5_0", **changes: Any) -> RdmaPort:
    """ACTIVE in an InfiniBand NDR fabric."""
    port = RdmaPort(
        device=device,
        number=1,
        state="ACTIVE",
        link_layer="InfiniBand",
        physical_state="LinkUp",
        rate=400.0,
        rate_text=NDR,
        lid=18,
        subnet_manager_lid=1,
        gids=(Gid(0, f"{PREFIX}:a088:c203:0055:48ae", "IB/RoCE v1"),),
        counters={"link_downed": 3},  # since the machine started, as usual
    )
    return replace(port, **changes)


def in_subnet(prefix: str) -> dict[str, Any]:
    return {"gids": (Gid(0, f"{prefix}:a088:c203:0055:48ae", "IB/RoCE v1"),)}


def gids(*addresses: str, interface: str = "ens1f0np0") -> tuple[Gid, ...]:
    """Each twice, for RoCE v1 and v2, after the link-local one."""
    listed = [LINK_LOCAL, *(_exploded(one) for one in addresses)]
    return tuple(
        Gid(index=2 * n + version, gid=one, kind=kind, interface=interface)
        for n, one in enumerate(listed)
        for version, kind in enumerate(("IB/RoCE v1", "RoCE v2"))
    )


def _exploded(address: str) -> str:
    return ipaddress.IPv6Address(f"::ffff:{address}" if "." in address else address).exploded


def a_roce_port(device: str = "mlx5_0", address: str = "10.1.0.5", **changes: Any) -> RdmaPort:
    port = an_ib_port(
        device,
        link_layer="Ethernet",
        lid=0,
        subnet_manager_lid=0,
        interfaces=("ens1f0np0",),
        gids=gids(address) if address else gids(),
    )
    return replace(port, **changes)


def an_efa_port(device: str = "rdmap16s27") -> RdmaPort:
    return RdmaPort(
        device=device,
        number=1,
        state="ACTIVE",
        link_layer="Unknown",
        physical_state="LinkUp",
        rate=100.0,
        rate_text="100 Gb/sec (4X EDR)",
        gids=(Gid(0, LINK_LOCAL, ""),),
    )


def a_card(name: str = "mlx5_0", **changes: Any) -> RdmaCard:
    """A ConnectX-7 that this user can open."""
    number = int(re.search(r"(\d{1,2})$", name)[1])  # type: ignore[index]
    card = RdmaCard(
        name=name,
        driver="mlx5_core",
        bus_id=f"0000:{16 + number:02x}:00.0",
        numa=0,
        firmware="28.41.1000",
        uverbs=f"/dev/infiniband/uverbs{number}",
        open_error="",
        board="MT_0000000838",
        active_mtu={1: 4096},
    )
    return replace(card, **changes)


def an_efa_card(name: str = "rdmap16s27", **changes: Any) -> RdmaCard:
    return a_card(name, **{"driver": "efa", "board": "", "firmware": "0.0.0.0", **changes})


def of(
    *ports: RdmaPort, cards: Mapping[str, RdmaCard] | None = None, **card: Any
) -> dict[str, Any]:
    """The facts of a machine with these ports; a card for each, changed by `card`."""
    names = dict.fromkeys(port.device for port in ports)
    made = {name: a_card(name, **card) for name in names} | dict(cards or {})
    return {
        "rdma_devices": tuple(names),
        "rdma_ports": ports,
        "rdma_cards": tuple(made.values()),
    }


def rails(
    count: int = 8, odd: Mapping[int, Mapping[str, Any]] | None = None, **card: Any
) -> dict[str, Any]:
    """One InfiniBand card for each of as many GPUs; `odd` changes ports by their number."""
    ports = [an_ib_port(f"mlx5_{n}", **(odd or {}).get(n, {})) for n in range(count)]
    gpus = tuple(f"/dev/nvidia{n}" for n in range(count))
    return {**of(*ports, **card), "accelerators": gpus}


DOWN = {"state": "DOWN", "physical_state": "Polling", "rate": 10.0,
        "rate_text": "10 Gb/sec (4X SDR)"}  # fmt: skip
EFA = {
    **of(
        an_efa_port(),
        an_efa_port("rdmap32s27"),
        cards={name: an_efa_card(name) for name in ("rdmap16s27", "rdmap32s27")},
    ),
    "software": replace(
        software(nccl="2.29.7"), net_plugins=("/opt/amazon/ofi-nccl/lib/libnccl-net.so",)
    ),
}
AZURE = of(
    *(an_ib_port(f"mlx5_ib{n}") for n in range(8)),
    a_roce_port("mlx5_an0", "", rate=100.0, rate_text="100 Gb/sec (4X EDR)"),
)
"""the last is for accelerated networking, and has no address of its own"""
WITH_GUESTS = {
    **of(
        *(an_ib_port(f"mlx5_{n}") for n in range(8)),
        *(an_ib_port(f"mlx5_{n}", **DOWN) for n in range(8, 11)),
        cards={f"mlx5_{n}": a_card(f"mlx5_{n}", virtual_function=True) for n in range(8, 11)},
    ),
    "accelerators": tuple(f"/dev/nvidia{n}" for n in range(8)),
}
"""parts of the cards are made for virtual machines, and none uses them"""
DGX = {
    **of(
        *(an_ib_port(f"mlx5_{n}") for n in range(8)),
        an_ib_port("mlx5_8", rate=200.0, rate_text=HDR),
        an_ib_port("mlx5_9", **DOWN),
        an_ib_port("mlx5_10", rate=200.0, rate_text=HDR),
        an_ib_port("mlx5_11", **DOWN),
        cards={f"mlx5_{n}": a_card(f"mlx5_{n}", board="MT_0000001069") for n in range(8, 12)},
    ),
    "accelerators": tuple(f"/dev/nvidia{n}" for n in range(8)),
}
"""beside the rails two cards for storage, with one cable each"""
IN_POD = of(
    *(an_ib_port(f"mlx5_{n}") for n in range(8)),
    cards={
        f"mlx5_{n}": a_card(f"mlx5_{n}", open_error="ENOENT", active_mtu={}) for n in range(4, 8)
    },
)
"""a device plugin gave a container half of the cards; the kernel shows all of them"""
HEALTHY = {
    "eight rails": rails(8),
    "a DGX": DGX,
    "RoCE": of(a_roce_port("mlx5_0", "10.1.0.5"), a_roce_port("mlx5_1", "10.2.0.5")),
    "EFA": EFA,
    "Azure": AZURE,
    "guests": WITH_GUESTS,
    "a pod": IN_POD,
    "one card": rails(1),
}
