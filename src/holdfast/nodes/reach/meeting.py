"""Where the nodes of a job meet, and which of them coordinates; pure."""

from __future__ import annotations

import dataclasses
import enum
import ipaddress
from collections.abc import Collection, Iterable

from holdfast.errors import ConfigError

DEFAULT_STORE_PORT = 29500
"""torch's own default: the store of the job is going to listen there"""
LOWEST, HIGHEST = 1024, 32767
"""a meeting port needs no root, and is below Linux's default range of ephemeral ports"""
_JOBS_LOWEST = 16384
EVERYWHERE = ("0.0.0.0", "::")


@dataclasses.dataclass(frozen=True)
class MeetingPlan:
    """What flags and environment say about the meeting, each with its source for messages."""

    nodes: int
    nodes_source: str
    port: int
    port_source: str
    host: str = ""
    """where the coordinator is; '' when nothing tells"""
    host_source: str = ""
    index: int | None = None
    """of this node, from 0; None when nothing tells"""
    index_source: str = ""
    by_address: bool = True
    """the node that has the host's address coordinates; else node 0 does"""
    least: int = 0
    """the job starts with this many nodes (`--nnodes 2:4`); 0: all"""
    names: tuple[str, ...] = ()
    """the nodes by index, where the scheduler tells"""
    own_name: str = ""
    rack: str = ""
    job: str = ""
    """the same on all nodes of this job, and different for the next; '' when nothing tells"""
    steps_aside: str = ""
    """why this process takes no part: one a node does; '' when it does"""
    notes: tuple[str, ...] = ()
    """what does not fit together, and does not keep the nodes from meeting"""


class MeetingRole(enum.Enum):
    COORDINATE = "coordinate"
    COORDINATE_IF_FREE = "coordinate, or join the process of this node that was first"
    JOIN = "join"


def role(
    plan: MeetingPlan,
    *,
    resolved: Collection[str],
    own: Collection[str],
    own_names: Collection[str] = (),
) -> tuple[MeetingRole, str]:
    """What this process does, and why. `resolved` are the addresses of the meeting's host as this
    node sees them, `own` the addresses of this node, `own_names` what it is called.

    Raises:
        ConfigError: every machine of a name would take itself for the one that is meant.
    """
    if not plan.by_address and plan.index is not None:
        if plan.index == 0:
            return MeetingRole.COORDINATE, f"this is node 0 ({plan.index_source})"
        return MeetingRole.JOIN, f"this is node {plan.index} ({plan.index_source})"
    mine = sorted(set(resolved) & set(own)) or [a for a in resolved if _is_loopback(a)]
    place = f"{plan.host} ({plan.host_source})"
    named = _is_called(plan.host, own_names)
    others = [ip for ip in resolved if ip not in own and not _stays_here(ip)]
    if mine and others and not named:
        raise ConfigError(
            f"{place} is several machines here ({', '.join([*mine, *others])}), this one among "
            "them: each would coordinate a job of its own",
            hint="name one node, on all of them: its own name (a pod: NAME-0.SERVICE) or address",
        )
    if named and not resolved:
        return MeetingRole.COORDINATE_IF_FREE, f"{place} is this node's own name"
    if mine:
        return MeetingRole.COORDINATE_IF_FREE, f"{place} is this node{_at(mine[:1], plan.host)}"
    if not resolved:
        return MeetingRole.JOIN, f"{place} does not resolve here so far"
    return MeetingRole.JOIN, f"{place} is another node{_at(resolved, plan.host)}"


def _at(addresses: Iterable[str], typed: str) -> str:
    """' (10.0.0.1)', where that was not typed."""
    others = [address for address in addresses if address != typed]
    return f" ({', '.join(others)})" if others else ""


def bind_addresses(host: str) -> tuple[str, ...]:
    """Where the coordinator listens: at the address it was named by, else at all of them, since
    each node resolves a name in its own way.
    """
    return (host,) if is_address(host) else EVERYWHERE


def join_endpoint(text: str) -> tuple[str, int]:
    """`--join HOST:PORT`, with `[::1]:PORT` for IPv6."""
    host, colon, port = text.strip().rpartition(":")
    bare = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    if not colon or not bare or (":" in bare and not is_address(bare)) or " " in bare:
        raise ConfigError(
            f"--join must be HOST:PORT, got {text[:60]!r}", hint="--join node-a:29501 on every node"
        )
    if ":" in bare and not host.startswith("["):
        raise ConfigError(f"--join: write an IPv6 address in brackets, [{bare}]:{port[:10]}")
    if is_address(bare) and ipaddress.ip_address(bare).is_unspecified:
        raise ConfigError(f"--join must name an address of one node, got {bare}")
    if not (port.isascii() and port.isdigit() and len(port) < 6 and 1 <= int(port) <= 65535):
        raise ConfigError(f"--join: the port must be from 1 to 65535, got {port[:20]!r}")
    return bare, int(port)


def meeting_port(store_port: int | None, job: int | None = None) -> int:
    """A port that every node of the job computes alike: the one above that of the job's store,
    which is probed itself. Where that one is taken from the ephemeral range or needs root, or in
    Slurm without a store port, one from 16384 to 32766.
    """
    if store_port is None and job is None:
        return DEFAULT_STORE_PORT + 1
    if store_port is not None and LOWEST <= store_port < HIGHEST:
        return store_port + 1
    seed = store_port if store_port is not None else job or 0
    port = _JOBS_LOWEST + seed % (HIGHEST - _JOBS_LOWEST)
    return port + 1 if port == DEFAULT_STORE_PORT else port


def is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_called(host: str, own_names: Collection[str]) -> bool:
    """By its name, or by the beginning of its full name: 'pod-0.service' of
    'pod-0.service.space.svc.cluster.local'."""
    host = host.rstrip(".").lower()
    return any(
        name == host or name.startswith(f"{host}.") for name in (own.lower() for own in own_names)
    )


def _is_loopback(address: str) -> bool:
    return is_address(address) and ipaddress.ip_address(address).is_loopback


def _stays_here(address: str) -> bool:
    """No other machine is known by it."""
    return _is_loopback(address) or (
        is_address(address) and ipaddress.ip_address(address).is_link_local
    )
