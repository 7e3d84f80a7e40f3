"""Interfaces of a host: made with pyroute2, joined to a switch in the hub."""

from __future__ import annotations

import array
import fcntl
import socket
import struct
from dataclasses import dataclass
from typing import Any

from holdfast.drill.lab.errors import LabError
from holdfast.drill.lab.namespaces import inside_network

# A switch passes what a host can send: a smaller path is a matter of `Link.mtu`.
SWITCH_MTU = 9216


@dataclass(frozen=True)
class LabInterface:
    """One interface. Without addresses it gets 10.(77+switch).0.N/24, N counting the hosts; `()`
    means none. `bridge` makes a device like docker0, which is joined to no switch; it has a
    carrier only with `carrier=True`, as docker0 has once a container runs."""

    name: str = "e0"
    addresses: tuple[str, ...] | None = None
    mtu: int = 1500
    switch: int = 0
    bridge: bool = False
    carrier: bool = True


def default_addresses(interface: LabInterface, number: int, *, ipv6: bool) -> tuple[str, ...]:
    """`ADDRESS/LENGTH` each."""
    if interface.addresses is not None:
        return interface.addresses
    if interface.bridge:
        raise LabError(f"{interface.name}: a bridge needs its addresses named")
    subnet = 77 + interface.switch
    return (f"10.{subnet}.0.{number}/24", *([f"fd77:{subnet}::{number}/64"] if ipv6 else []))


def port_name(host: str, interface: str) -> str:
    """The other end of an interface, in the hub. Linux allows 15 characters."""
    name = f"{host}.{interface}"
    if len(name) > 15:
        raise LabError(f"{name}: host and interface may have 14 characters together")
    return name


class Network:
    """One network namespace through pyroute2."""

    def __init__(self, namespace: int) -> None:
        # not at the top: it takes 0.15 s, and tests that skip need no netlink
        from pyroute2 import IPRoute  # noqa: PLC0415

        self.namespace = namespace
        with inside_network(namespace):
            self._route: Any = IPRoute()

    def close(self) -> None:
        self._route.close()

    def index(self, name: str) -> int:
        found = self._route.link_lookup(ifname=name)
        if not found:
            raise LabError(f"no interface {name}")
        return int(found[0])

    def mac(self, name: str) -> str:
        return str(self._route.get_links(self.index(name))[0].get_attr("IFLA_ADDRESS"))

    def set(self, name: str, **what: Any) -> None:
        self._route.link("set", index=self.index(name), **what)

    def add_bridge(self, name: str, mtu: int) -> None:
        # a switch, not a router with opinions: every group's packets go to all ports
        self._route.link("add", ifname=name, kind="bridge", br_mcast_snooping=0)
        self.set(name, mtu=mtu, state="up")

    def add_pair(self, name: str, mtu: int, hub: Network, port: str, bridge: str | None) -> None:
        """A veth: `name` here, `port` in the hub, there on `bridge`."""
        peer = {"ifname": port, "mtu": SWITCH_MTU, "net_ns_fd": hub.namespace}
        self._route.link("add", ifname=name, kind="veth", mtu=mtu, peer=peer)
        if bridge:
            hub.set(port, master=hub.index(bridge))
        hub.set(port, state="up")
        for network, device in ((self, name), (hub, port)):
            network.turn_offloads_off(device)
        self.set(name, state="up")

    def remove(self, name: str) -> None:
        self._route.link("del", index=self.index(name))

    def add_address(self, name: str, address: str) -> None:
        plain, _, length = address.partition("/")
        flags = {"flags": _IFA_F_NODAD} if ":" in plain else {}
        self._route.addr(
            "add", index=self.index(name), address=plain, prefixlen=int(length), **flags
        )

    def add_route(self, destination: str, via: str | None, interface: str | None) -> None:
        what: dict[str, Any] = {"dst": destination}
        if via:
            what["gateway"] = via
        if interface:
            what["oif"] = self.index(interface)
        self._route.route("add", **what)

    def turn_offloads_off(self, name: str) -> None:
        """Packets leave in the size in which they travel, as a firewall or a small MTU meets them;
        with offloads on, a veth hands over 64 KiB at once."""
        with inside_network(self.namespace), socket.socket(socket.AF_INET) as any_socket:
            for command in _OFFLOADS_OFF:
                value = array.array("B", struct.pack("II", command, 0))
                request = struct.pack("16sP", name.encode(), value.buffer_info()[0])
                fcntl.ioctl(any_socket, _SIOCETHTOOL, request)


_IFA_F_NODAD = 0x02
_SIOCETHTOOL = 0x8946
# as linux/ethtool.h numbers the commands for TSO, GSO, GRO and checksums of what is sent: the
# relay reads packets before a card would fill them in
_OFFLOADS_OFF = (0x1F, 0x24, 0x2C, 0x17)
