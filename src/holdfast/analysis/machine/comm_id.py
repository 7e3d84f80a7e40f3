"""NCCL_COMM_ID: `ADDRESS:PORT`, `NAME:PORT` or `[IPV6]:PORT` of the rank that starts NCCL.

Read from NVIDIA/nccl src/misc/socket.cc: ncclSocketGetAddrFromString, ncclFindInterfaceMatchSubnet.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence

from holdfast.analysis.machine import CouldNotLook, Interface, addresses
from holdfast.analysis.machine.interface_choice import Listed, listed

COMM_ID = "NCCL_COMM_ID"


def address_in(value: str, resolved: Mapping[str, Sequence[str]]) -> str:
    """The address in NCCL_COMM_ID; raises ValueError where NCCL calls the value invalid."""
    if len(value) < 2:
        raise ValueError(f"{COMM_ID}={value} holds no address")
    if value.startswith("["):
        address, bracket, _ = value[1:].partition("]")
        if not bracket or addresses.parse(address.partition("%")[0]) is None:
            raise ValueError(f"{COMM_ID}={value} holds no IPv6 address")
        return address
    host = value.partition(",")[0].partition(":")[0]
    if addresses.parse(host) is not None:
        return host
    if host not in resolved:
        raise CouldNotLook(f"{COMM_ID} names {host}, which was not resolved here")
    if not resolved[host]:
        raise ValueError(f"{host} in {COMM_ID} does not resolve")
    return resolved[host][0]


def in_same_subnet(interfaces: Sequence[Interface], remote: str) -> Listed | None:
    """NCCL checks neither family setting nor filter nor RUNNING here."""
    text, _, scope = remote.partition("%")
    ip = addresses.parse(text)
    for entry in listed(interfaces):
        own = addresses.parse(entry.address.ip)
        if ip is None or own is None or own.version != ip.version:
            continue
        own_scope = entry.interface.name if addresses.is_link_local(entry.address.ip) else ""
        network = ipaddress.ip_network(f"{own}/{entry.address.prefix}", strict=False)
        if ip in network and own_scope == scope:
            return entry
    return None
