"""Which address a log says that NCCL announced, and whether it means anything elsewhere."""

from __future__ import annotations

from holdfast.analysis.logs.patterns import connections, nccl, peers, watchdog
from holdfast.analysis.logs.patterns.connections import Attempt
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.machine import addresses, nic_filter

PRIVATE_PREFIXES = ("docker", "virbr", "br-", "veth", "cni", "flannel", "lxcbr", "lxdbr", "podman")
"""interfaces that software creates on one machine: their addresses mean nothing on another"""
STUCK_SIGNS = (watchdog.WATCHDOG, watchdog.STORE_GET, peers.NCCL_REMOTE, nccl.ERROR_CODE)


def is_private(seen: Sighting) -> bool:
    name, address = seen.fields.get("interface", ""), seen.fields.get("address", "")
    return addresses.is_loopback(address) or name == "lo" or name.startswith(PRIVATE_PREFIXES)


def is_private_address(address: str) -> bool:
    """Loopback, or the network that Docker gives its bridge."""
    return addresses.is_loopback(address) or address.startswith("172.17.")


def interface_of(chosen: list[Sighting], failed: list[Attempt]) -> str:
    if chosen:
        return chosen[0].fields["interface"]
    return "lo" if addresses.is_loopback(failed[0].address) else "docker0"


def confidence(wreckage: Wreckage, chosen: list[Sighting], failed: list[Attempt]) -> float:
    """On one machine loopback works, so something must show that there are several."""
    several = len(wreckage.hosts) > 1
    if _named_loopback(wreckage):
        return 0.5 if failed or several else 0.0  # loopback-multi-node says it better
    if chosen and failed:
        return 0.9 if several else 0.75
    if failed:
        return 0.6
    stuck = bool(wreckage.seen(*STUCK_SIGNS)) or any(connections.attempts(wreckage))
    return 0.7 if several and stuck and not wreckage.roots() else 0.0


def _named_loopback(wreckage: Wreckage) -> bool:
    return wreckage.settings.get(nic_filter.NCCL, "").lstrip("=") in ("lo", "127.0.0.1")


def network(address: str) -> str:
    """The widest part that subnets of one job usually share; logs do not show the netmask."""
    ip = addresses.parse(address)
    if ip is None:
        return ""
    return ".".join(str(ip).split(".")[:2]) if ip.version == 4 else ip.exploded[:14]
