"""Over which interface, and by which means, the ranks really talk to each other.

Read once, after the first step: from the ranks' own TCP connections, and from NCCL's log where
there is one (NCCL_DEBUG=INFO). The kernel hands packets between two addresses of one machine
over loopback; the interface named here is the one whose address the ranks chose.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from holdfast.analysis.machine import Unread, nic_filter
from holdfast.system import deadline, inet_diag
from holdfast.system.inet_diag import TcpConnection
from holdfast.system.interface_addresses import interface_addresses
from holdfast.system.proc import folder

GLOO_THREAD = "gloo_tcp_loop"
HEAD = 256 * 1024
"""bytes of a log: NCCL says how it talks when it starts"""

SECONDS = 1.0
"""to read them"""

_CHOSEN = re.compile(r"NCCL INFO (?:Bootstrap|NET/Socket) ?: Using (.+)")
_INTERFACE = re.compile(r"(?:^|[\s\]])([^\s:\[\]]+):\S+<\d+>")
_VIA = re.compile(r"NCCL INFO Channel .* via ((?:NET/\w+|P2P|SHM|CollNet|NVLS)[^\s/]*)")


class SeenTransport(msgspec.Struct, frozen=True, kw_only=True):
    links: tuple[tuple[str, str], ...] = ()
    """interface and address of every TCP connection from one rank to another"""
    gloo: bool = False
    """a rank runs Gloo's own thread"""
    nccl: tuple[str, ...] = ()
    """'NET/Socket', 'P2P', 'SHM': what NCCL says its channels go by"""
    nccl_interfaces: tuple[str, ...] = ()


# --- pure ----------------------------------------------------------------------------------------


def links(
    connections: Iterable[TcpConnection],
    owners: Mapping[int, int],
    interfaces: Mapping[str, str],
) -> tuple[tuple[str, str], ...]:
    """Connections whose two ends belong to two different ranks.

    `owners`: inode -> pid; `interfaces`: address -> name. Those to the store, to a database, to
    a logging service have only one end here.
    """
    ends = {(c.local, c.local_port, c.peer, c.peer_port): owners.get(c.inode) for c in connections}
    found = set()
    for (local, port, peer, peer_port), pid in ends.items():
        other = ends.get((peer, peer_port, local, port))
        if pid and other and pid != other:
            found.add((_interface(local, interfaces), local))
    return tuple(sorted(found))


def _interface(address: str, interfaces: Mapping[str, str]) -> str:
    if address in interfaces:
        return interfaces[address]
    return "lo" if ipaddress.ip_address(address).is_loopback else "an unknown interface"


def from_nccl_log(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The means its channels go by, and the interfaces it chose."""
    means = {found[1] for line in text.splitlines() if (found := _VIA.search(line))}
    chosen = {
        name
        for line in text.splitlines()
        if (found := _CHOSEN.search(line))
        for name in _INTERFACE.findall(found[1])
    }
    return tuple(sorted(means)), tuple(sorted(chosen))


def sentence(seen: SeenTransport) -> str:
    """'ranks communicate over lo (127.0.0.1), Gloo; NCCL uses P2P on eth0'; '' when unknown."""
    parts = []
    if seen.links:
        over = " and ".join(f"{name} ({address})" for name, address in seen.links)
        parts.append(f"ranks communicate over {over}" + (", Gloo" if seen.gloo else ""))
    if seen.nccl or seen.nccl_interfaces:
        by = f" {', '.join(seen.nccl)}" if seen.nccl else ""
        on = f" on {', '.join(seen.nccl_interfaces)}" if seen.nccl_interfaces else ""
        parts.append(f"NCCL uses{by}{on}")
    return "; ".join(parts)


def contradiction(seen: SeenTransport, environment: Mapping[str, str]) -> str:
    """A warning when an interface was asked for and another one is used; '' when all is well."""
    asked = environment.get(nic_filter.NCCL, "")
    if not nic_filter.is_ignored(asked):
        wanted = nic_filter.read_nccl(asked)
        strange = [name for name in seen.nccl_interfaces if not wanted.admits(name)]
        if strange:
            return f"{nic_filter.NCCL}={asked} is set, but NCCL uses {', '.join(strange)}"
    asked = environment.get(nic_filter.GLOO, "")
    used = {name for name, _ in seen.links}
    if nic_filter.is_ignored(asked) or not seen.gloo or not used:
        return ""
    if used.isdisjoint(nic_filter.read_gloo(asked)):
        names = ", ".join(sorted(used))
        return f"{nic_filter.GLOO}={asked} is set, but the ranks communicate over {names}"
    return ""


# --- the world -----------------------------------------------------------------------------------


def describe(pids: Sequence[int], logs: Sequence[str]) -> str:
    """The sentence alone; '' when nothing could be seen."""
    return sentence(look(pids, logs, os.environ))


def look(pids: Sequence[int], logs: Sequence[str], environment: Mapping[str, str]) -> SeenTransport:
    """`logs`: the files that hold what the ranks print. Never raises."""
    try:
        means, chosen = from_nccl_log(_heads([*logs, *_nccl_files(pids, environment)]))
        return SeenTransport(
            links=links(inet_diag.connections(), _owners(pids), _interfaces()),
            gloo=any(_has_thread(pid, GLOO_THREAD) for pid in pids),
            nccl=means,
            nccl_interfaces=chosen,
        )
    except (OSError, ValueError):  # no INET_DIAG in this sandbox, a file that went away
        return SeenTransport()


def _heads(files: Sequence[str]) -> str:
    """By a child with a deadline: these files may be on a disk that hangs."""
    questions = {"logs": lambda: "\n".join(map(_head, files)).encode()}
    answer = deadline.ask(questions, seconds=SECONDS)["logs"]
    return "" if isinstance(answer, Unread) else answer.decode(errors="replace")


def _nccl_files(pids: Sequence[int], environment: Mapping[str, str]) -> list[str]:
    """NCCL_DEBUG_FILE names one file a process: %h is the host, %p the pid."""
    pattern = environment.get("NCCL_DEBUG_FILE", "").replace("%h", socket.gethostname())
    return sorted({pattern.replace("%p", str(pid)) for pid in pids}) if pattern else []


def _head(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(HEAD).decode(errors="replace")
    except OSError:
        return ""


def _owners(pids: Iterable[int]) -> dict[int, int]:
    found = {}
    for pid in pids:
        for name in _listed(f"{folder(pid)}/fd"):
            try:
                target = os.readlink(f"{folder(pid)}/fd/{name}")
            except OSError:  # closed meanwhile
                continue
            if target.startswith("socket:["):
                found[int(target[8:-1])] = pid
    return found


def _has_thread(pid: int, name: str) -> bool:
    threads = _listed(f"{folder(pid)}/task")
    return any(_head(f"{folder(pid)}/task/{thread}/comm").strip() == name for thread in threads)


def _listed(where: str) -> list[str]:
    try:
        return os.listdir(where)
    except OSError:  # it ended meanwhile
        return []


def _interfaces() -> dict[str, str]:
    return {one.ip: one.interface for one in interface_addresses()}
