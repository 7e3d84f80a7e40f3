"""Nodes that cannot be told apart: by NCCL, or by an address that two of them have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from holdfast.analysis.machine import Unread, addresses
from holdfast.analysis.nodes.facts import Node, NodesFacts
from holdfast.analysis.nodes.paths import Target

HOSTID = "NCCL_HOSTID"


class Twins(NamedTuple):
    """Nodes that NCCL takes for one machine."""

    names: tuple[str, ...]
    host: str
    boot_id: str
    by_setting: str
    """'NCCL_HOSTID=x' where that made them equal, else '' """
    one_machine: bool
    """they also have the same addresses: it is the same machine, listed or started twice"""


def nccl_identity(node: Node) -> tuple[str, str, str] | Unread:
    """What NCCL compares: NCCL_HOSTID where it is set, else hostname and boot id."""
    if isinstance(node.facts.settings, Unread):
        return node.facts.settings
    setting = node.facts.setting(HOSTID)
    if setting is not None and setting.value:
        return "", "", f"{HOSTID}={setting.value}"
    if isinstance(node.boot_id, Unread):
        return node.boot_id
    return node.facts.host, node.boot_id, ""


def twins(nodes: Mapping[str, tuple[str, str, str]], facts: NodesFacts) -> list[Twins]:
    groups: dict[tuple[str, str, str], list[str]] = {}
    for name, identity in nodes.items():
        groups.setdefault(identity, []).append(name)
    return [
        Twins(tuple(sorted(names)), *identity, _same_machine(facts, names))
        for identity, names in groups.items()
        if len(names) > 1
    ]


def _same_machine(facts: NodesFacts, names: list[str]) -> bool:
    sets = {_own_addresses(facts.node(name)) for name in names}
    return len(sets) == 1 and bool(next(iter(sets)))


def _own_addresses(node: Node) -> frozenset[str]:
    interfaces = () if isinstance(node.facts.interfaces, Unread) else node.facts.interfaces
    return frozenset(
        address.ip
        for one in interfaces
        if one.kind != "loopback" and not addresses.is_private_bridge(one)
        for address in one.addresses
    )


def shared_addresses(targets: Mapping[tuple[str, str], Target]) -> dict[str, tuple[Target, ...]]:
    """Addresses at which several nodes listen; a link-local one is unique on its link only."""
    by_address: dict[str, list[Target]] = {}
    for (_, address), target in sorted(targets.items(), key=lambda item: item[0]):
        if not addresses.is_link_local(address) and not addresses.is_loopback(address):
            by_address.setdefault(address, []).append(target)
    return {ip: tuple(found) for ip, found in by_address.items() if len(found) > 1}
