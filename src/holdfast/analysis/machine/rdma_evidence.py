"""What was seen of RDMA ports, quoted with the file it is in."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from holdfast.analysis.machine import RdmaPort, gid_choice
from holdfast.analysis.machine.rdma_use import PortAddress
from holdfast.findings import Evidence

MOST = 5
"""ports that are quoted"""
MOST_ADDRESSES = 4


def states(ports: Iterable[RdmaPort]) -> list[Evidence]:
    """'mlx5_3:1 DOWN, physical state Polling'"""
    return [
        Evidence(
            quote=f"{port.name} {port.state}"
            + (f", physical state {port.physical_state}" if port.physical_state else ""),
            source=_folder(port),
        )
        for port in islice(ports, MOST)
    ]


def rates(ports: Iterable[RdmaPort]) -> list[Evidence]:
    """'mlx5_3:1 ACTIVE, 400 Gb/sec (4X NDR)'"""
    return [
        Evidence(
            quote=f"{port.name} {port.state}, {port.rate_text or port.link_layer}",
            source=f"{_folder(port)}/rate",
        )
        for port in islice(ports, MOST)
    ]


def addresses(ports: Iterable[PortAddress]) -> list[Evidence]:
    """'mlx5_0:1 (ens1f0np0): 0 fe80::1 IB/RoCE v1, 1 fe80::1 RoCE v2'"""
    return [
        Evidence(quote=_listed(one.port), source=f"{_folder(one.port)}/gids")
        for one in islice(ports, MOST)
    ]


def _listed(port: RdmaPort) -> str:
    entries = [f"{g.index} {gid_choice.address(g)} {g.kind}".rstrip() for g in port.gids]
    shown = ", ".join(entries[:MOST_ADDRESSES]) or "no address"
    return f"{port.name} ({', '.join(port.interfaces) or 'no interface here'}): {shown}"


def _folder(port: RdmaPort) -> str:
    return f"/sys/class/infiniband/{port.device}/ports/{port.number}"
