"""NCCL chose an interface that does not lead to the other machines.

What you see   `Bootstrap: Using lo:127.0.0.1<0>` (or docker0, virbr0, a VPN) with NCCL_DEBUG=INFO,
               then connections that are refused or time out, or a hang in the first collective.
               The store works, since it follows MASTER_ADDR and not this choice. NCCL before 2.24:
               `Software caused connection abort`.
Why            Each rank tells the others one address: that of the first interface that NCCL
               admits. Without NCCL_SOCKET_IFNAME it takes `ib*` first, then anything that is not
               called docker*, lo or virbr*: a bridge br-*, a veth or a tunnel passes. A filter
               that only excludes, such as `^docker0`, replaces these rules, so lo is admitted,
               and it comes first. On one machine all of that works, which hides it.
How to be sure NCCL_DEBUG=INFO prints the choice of every rank; each address must be one that the
               other machines can reach. `ip route get ADDRESS_OF_A_PEER` names the interface to
               use.
Fix            Name the interface: `export NCCL_SOCKET_IFNAME==eth0` (exact), and
               GLOO_SOCKET_IFNAME=eth0 for Gloo. If you must exclude, exclude lo as well:
               `^docker,lo`. Where names differ between machines, set it per machine
               (/etc/nccl.conf).
Sources        NVIDIA/nccl src/misc/socket.cc: ncclFindInterfaces
               NVIDIA/nccl src/bootstrap.cc: only the first match counts
               https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
               https://github.com/horovod/horovod/issues/700
               https://github.com/NVIDIA/nccl/issues/913
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.patterns import connections, nccl, peers, watchdog
from holdfast.analysis.logs.patterns.connections import Attempt
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.machine import addresses, nic_filter
from holdfast.analysis.source.source import Source, SourceSetting
from holdfast.analysis.variables.in_source import at, machines, readable
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis, Finding

FAULT = Fault(code="HOLD201", slug="wrong-nic")

CHOSE = FAULT.log_pattern(
    "chose",
    r"NET ?: Using interface (?P<interface>[^\s:]+):(?P<address>[^\s<]+)",
    anchors=("Using interface ",),
    example="node-a:411:411 [0] NCCL INFO NET : Using interface eth0:192.0.2.2<0>",  # before 2.4
    role=Role.CONTEXT,
)
NO_COMMON = FAULT.log_pattern(
    "no-common",
    r"Unable to find a set of common task-to-task communication interfaces",
    anchors=("common task-to-task communication",),
    example="Exception: Unable to find a set of common task-to-task communication interfaces: "
    "[(0, {'eth0': [('192.0.2.2', 40001)]})]",
)

PRIVATE = ("docker", "virbr", "br-", "veth", "cni", "flannel", "lxcbr", "lxdbr", "podman")
"""interfaces that software makes for itself: their addresses mean nothing on another machine"""
BRIDGES = ("docker", "virbr", "br-", "veth")
"""of those, the ones that never lead to another machine: overlays (flannel) do"""
TROUBLE = (watchdog.WATCHDOG, watchdog.STORE_GET, peers.NCCL_REMOTE, nccl.ERROR_CODE)


@FAULT.explain
def ranks_announce_a_private_address(wreckage: Wreckage) -> Diagnosis | None:
    chosen = [s for s in wreckage.seen(nccl.BOOTSTRAP_USING, CHOSE) if _is_private(s)]
    failed = [
        one
        for one in connections.attempts(wreckage, connections.NCCL)
        if _is_private_address(one.address) or (chosen and not one.address)
    ]
    if not chosen and not failed:
        return None
    named = _interface(chosen, failed)
    confidence = _confidence(wreckage, chosen, failed)
    if not confidence:
        return None
    setting = wreckage.settings.get(nic_filter.NCCL, "")
    where = f"{chosen[0].fields['interface']} ({chosen[0].fields['address']})" if chosen else named
    return FAULT.diagnosis(
        f"NCCL announced {where} to the other ranks, an address that leads nowhere from another "
        f"machine{_by_filter(setting, named)}",
        confidence=confidence,
        seen=[*chosen, *(one.seen for one in failed)],
        culprit=Culprit(what=f"{named}{_admitted(setting, named)}"),
        fix="name the interface that reaches the other machines: `export "
        "NCCL_SOCKET_IFNAME==eth0` (exact name), GLOO_SOCKET_IFNAME the same without the sign",
        next="ip -br address",
    )


@FAULT.explain
def mpi_called_a_private_address(wreckage: Wreckage) -> Diagnosis | None:
    """Open MPI tries every interface that both machines have, Docker's bridge among them."""
    failed = [
        one
        for one in connections.attempts(wreckage, connections.MPI)
        if _is_private_address(one.address)
    ]
    missed = wreckage.seen(NO_COMMON)
    if not failed and not missed:
        return None
    return FAULT.diagnosis(
        f"Open MPI called {failed[0].address}, an address that every machine has for itself"
        if failed
        else "Horovod found no interface of one name by which all hosts reach each other",
        confidence=0.6,
        seen=[*(one.seen for one in failed), *missed],
        culprit=Culprit(what=_interface([], failed) if failed else "network interfaces"),
        fix="name the interface that reaches the other machines: `mpirun --mca btl_tcp_if_include "
        "eth0 --mca oob_tcp_if_include eth0`, `horovodrun --network-interfaces eth0`",
        next="ip -br address",
    )


@FAULT.explain
def machines_chose_different_networks(wreckage: Wreckage) -> Diagnosis | None:
    """Each address may be fine on its own; together they are not one network."""
    chosen = [s for s in wreckage.seen(nccl.BOOTSTRAP_USING) if not _is_private(s)]
    if any(_is_private(s) for s in wreckage.seen(nccl.BOOTSTRAP_USING)):
        return None
    by_name = {s.fields["interface"]: s for s in chosen}
    networks = {_network(s.fields["address"]) for s in chosen} - {""}
    failed = connections.attempts(wreckage, connections.NCCL)
    if len(networks) < 2 or len(wreckage.hosts) < 2 or not failed:
        return None
    told = ", ".join(f"{s.line.host or 'one'}: {name}" for name, s in by_name.items())
    return FAULT.diagnosis(
        f"the machines announced addresses of different networks ({told}) and could not connect",
        confidence=0.5,
        seen=[*by_name.values(), *(one.seen for one in failed)],
        culprit=Culprit(what=", ".join(by_name)),
        fix="choose the network that all machines share: NCCL_SOCKET_IFNAME on each of them",
        next="ip -br address",
    )


def _is_private(seen: Sighting) -> bool:
    name, address = seen.fields.get("interface", ""), seen.fields.get("address", "")
    return addresses.is_loopback(address) or name == "lo" or name.startswith(PRIVATE)


def _is_private_address(address: str) -> bool:
    """Loopback, or the network that Docker gives its bridge."""
    return addresses.is_loopback(address) or address.startswith("172.17.")


def _interface(chosen: list[Sighting], failed: list[Attempt]) -> str:
    if chosen:
        return chosen[0].fields["interface"]
    return "lo" if addresses.is_loopback(failed[0].address) else "docker0"


def _confidence(wreckage: Wreckage, chosen: list[Sighting], failed: list[Attempt]) -> float:
    """On one machine loopback serves well, so something must show that there are more."""
    several = len(wreckage.hosts) > 1
    if _named_loopback(wreckage):
        return 0.5 if failed or several else 0.0  # loopback-multi-node says it better
    if chosen and failed:
        return 0.9 if several else 0.75
    if failed:
        return 0.6
    stuck = bool(wreckage.seen(*TROUBLE)) or any(connections.attempts(wreckage))
    return 0.7 if several and stuck and not wreckage.roots() else 0.0


def _named_loopback(wreckage: Wreckage) -> bool:
    return wreckage.settings.get(nic_filter.NCCL, "").lstrip("=") in ("lo", "127.0.0.1")


def _excludes_but_admits(setting: str, name: str) -> bool:
    return setting.startswith("^") and nic_filter.read_nccl(setting).admits(name)


def _by_filter(setting: str, name: str) -> str:
    if _excludes_but_admits(setting, name):
        return (
            f"; NCCL_SOCKET_IFNAME={setting} replaces NCCL's own rules and lets {name} in, which "
            "comes first"
        )
    return f" (NCCL_SOCKET_IFNAME={setting})" if setting else ""


def _admitted(setting: str, name: str) -> str:
    if _excludes_but_admits(setting, name):
        return f", re-admitted by {setting}"
    return f", chosen by NCCL_SOCKET_IFNAME={setting}" if setting else ""


def _network(address: str) -> str:
    """The widest part that subnets of one job commonly share; the mask is in no log."""
    ip = addresses.parse(address)
    if ip is None:
        return ""
    return ".".join(str(ip).split(".")[:2]) if ip.version == 4 else ip.exploded[:14]


# --- in what a user wrote -----------------------------------------------------------------------


@FAULT.lint
def the_filter_leads_nowhere(source: Source) -> Iterator[Finding]:
    for setting in readable(source, nic_filter.NCCL, nic_filter.GLOO):
        if nic_filter.is_ignored(setting.value):
            continue
        count = machines(source, setting)
        finding = _lets_loopback_in(setting, count) or _names_a_bridge(setting, count)
        if finding:
            yield at(finding, setting)


def _lets_loopback_in(setting: SourceSetting, count: int | None) -> Finding | None:
    chosen = nic_filter.read_nccl(setting.value)
    if setting.name != nic_filter.NCCL or not chosen.exclude or not chosen.admits("lo"):
        return None
    speak = FAULT.error if (count or 1) > 1 else FAULT.warning
    return speak(
        f"{setting.name}={setting.value} lets the loopback interface in",
        reason="a filter of your own replaces NCCL's rules, by which lo comes last; now it comes "
        "first. On one machine that works, another machine cannot be reached over it: the job "
        "hangs or fails at its first collective",
        fix=f"`{setting.name}='{nic_filter.excluding_loopback(chosen)}'`, or better name the "
        f"interface to use: `{setting.name}==eth0`",
    )


def _names_a_bridge(setting: SourceSetting, count: int | None) -> Finding | None:
    if setting.name == nic_filter.NCCL:
        chosen = nic_filter.read_nccl(setting.value)
        names = () if chosen.exclude else chosen.names
    else:
        names = nic_filter.read_gloo(setting.value)
        if any(map(nic_filter.strange, names)):
            return None  # what `^docker0` means to Gloo is nic-filter-syntax's
    bridges = [name for name in names if name.startswith(BRIDGES)]
    if not bridges or count == 1:
        return None
    return FAULT.warning(
        f"{setting.name}={setting.value} names {bridges[0]}, which leads to no other machine",
        reason="software on this machine makes that interface for its own containers or guests; "
        "its address means nothing elsewhere. Ranks on one machine can use it",
        fix=f"name the interface that `ip route get` shows for a peer, or remove {setting.name}",
    )
