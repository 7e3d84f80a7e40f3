"""A host in a network namespace with interfaces of any name, made by netlink alone.

The namespace goes with its process. Cables lead to a second namespace, the wire: an interface has a
carrier where its other end there is up.
"""

from __future__ import annotations

import ctypes
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

import pyroute2

from holdfast.analysis.machine import Address, Interface, addresses
from holdfast.system.interface_addresses import interface_addresses
from tools.nccl_choice_cases import MadeHost, MadeInterface

CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG, SIGKILL = 1, 9
IFF_RUNNING = 0x40
IFA_F_NODAD = 0x02
SETTLE_SECONDS = 3.0
libc = ctypes.CDLL(None, use_errno=True)


def in_own_namespace() -> None:
    """In a new child: its own network, and the end when we end."""
    libc.prctl(PR_SET_PDEATHSIG, SIGKILL)
    if libc.unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "unshare")


def interfaces_here() -> tuple[Interface, ...]:
    """By netlink alone: /sys shows the interfaces of another namespace."""
    with pyroute2.IPRoute() as here:
        flags = {link.get_attr("IFLA_IFNAME"): link["flags"] for link in here.get_links()}
    found = interface_addresses()
    return tuple(
        Interface(
            name=name,
            state="up",
            running=bool(flags[name] & IFF_RUNNING),
            kind="loopback" if name == "lo" else "veth",
            speed=None,
            mtu=1500,
            carrier_changes=None,
            addresses=tuple(
                Address(ip=one.ip, prefix=one.prefix, label=one.label)
                for one in found
                if one.interface == name
            ),
        )
        for _, name in socket.if_nameindex()
    )


def build(host: MadeHost, wire: int) -> None:
    with open("/proc/self/ns/net", "rb") as own, open(f"/proc/{wire}/ns/net", "rb") as other:
        here = pyroute2.IPRoute()
        libc.setns(other.fileno(), CLONE_NEWNET)
        there = pyroute2.IPRoute()  # a netlink socket stays in the namespace it was made in
        there.get_links()
        libc.setns(own.fileno(), CLONE_NEWNET)
    with here, there:
        if host.loopback:
            _attempt(host, here.link, "set", index=1, state="up")
        for made in host.interfaces:
            _attempt(host, make, made, here, there, wire)
    deadline = time.monotonic() + SETTLE_SECONDS
    running = {one.name for one in host.interfaces if one.carrier and one.kind == "veth"}
    while time.monotonic() < deadline:
        found = {one.name: one for one in interfaces_here()}
        settled = {name for name, one in found.items() if one.running and _is_settled(one)}
        if running <= settled:
            return
        time.sleep(0.05)


def _attempt(host: MadeHost, step: Callable[..., object], *what: Any, **how: Any) -> None:
    """A sandbox may refuse a step: what is there is compared all the same."""
    try:
        step(*what, **how)
    except (pyroute2.NetlinkError, OSError, LookupError) as problem:
        print(f"{host.name}: {problem!r}", file=sys.stderr, flush=True)


def _is_settled(interface: Interface) -> bool:
    """The kernel adds a link-local address by itself, a moment after the carrier."""
    return any(addresses.is_link_local(one.ip) for one in interface.addresses)


def make(made: MadeInterface, here: Any, there: Any, wire: int) -> None:
    if made.kind == "bridge":
        here.link("add", ifname=made.name, kind="bridge")
    else:
        far = f"p-{made.name}"[:15]
        wanted: dict[str, Any] = {"index": made.ifindex} if made.ifindex else {}
        wanted |= {"ifname": made.name, "kind": "veth"}
        try:
            here.link("add", peer={"ifname": far, "net_ns_pid": wire}, **wanted)
        except pyroute2.NetlinkError:
            here.link("add", peer={"ifname": far}, **wanted)
            there = here
        if made.carrier:
            there.link("set", index=there.link_lookup(ifname=far)[0], state="up")
    index = here.link_lookup(ifname=made.name)[0]
    here.link("set", index=index, state="up")
    for text in made.addresses:
        cidr, _, label = text.partition(" ")
        address, _, prefix = cidr.partition("/")
        more: dict[str, Any] = {"label": label} if label else {}
        if addresses.is_ipv6(address):
            more["flags"] = IFA_F_NODAD
        here.addr("add", index=index, address=address, prefixlen=int(prefix), **more)
