"""What happens on the way between two hosts: rules and relays of the hub, which the hosts cannot
see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING

from holdfast.drill.lab.errors import LabError
from holdfast.drill.lab.interfaces import Network, port_name
from holdfast.drill.lab.relay import Relay

if TYPE_CHECKING:
    from holdfast.drill.lab.host import Host


@dataclass
class Link:
    """The path between two hosts, both ways; `to` limits a fault to packets towards that host.
    Faults add up until `restore`."""

    a: Host
    b: Host
    interface: str | None
    hub: Network
    changed: Callable[[], None]
    rules: list[str] = field(default_factory=list)
    rejects: list[tuple[Host, str]] = field(default_factory=list)
    relays: list[Relay] = field(default_factory=list)

    def drop(self, port: int | None = None, *, protocol: str = "", to: Host | None = None) -> Link:
        """Silently; with `port` what is sent to that port, else everything (or `protocol`)."""
        return self._add(f"{_match(port, protocol)} drop", to)

    def loss(self, percent: int, *, to: Host | None = None) -> Link:
        return self._add(f"numgen random mod 100 < {percent} drop", to)

    def mtu(self, size: int, *, to: Host | None = None) -> Link:
        """Larger packets vanish, as on a switch whose port is smaller than the hosts': no one is
        told. Give the hosts a larger MTU."""
        self._add(f"ip length > {size} drop", to)
        return self._add(f"ip6 length > {size - 40} drop", to)

    def rate(self, megabytes: int, *, to: Host | None = None) -> Link:
        """So many megabytes a second, each way, after those of the first second, which pass at
        once; the rest is lost, and TCP slows down."""
        return self._add(f"limit rate over {megabytes} mbytes/second drop", to)

    def delay(self, milliseconds: float, *, to: Host | None = None) -> Link:
        """Each way, by a relay, which no other fault of this link reaches."""
        if self.rules:
            raise LabError("a delay does not add up with other faults of a link")
        for sender, receiver, one, other in self._ways(to):
            mac = receiver.network.mac(other)
            ports = port_name(sender.name, one), port_name(receiver.name, other)
            self.relays.append(Relay(self.hub.namespace, ports, mac, milliseconds / 1000))
            self.rules.append(f'iifname "{ports[0]}" ether daddr {mac} drop')
        self.changed()
        return self

    def cut(self, *, but_port: int | None = None, to: Host | None = None) -> Link:
        """Address resolution too; with `but_port` all but TCP to and from that port."""
        if but_port is not None:
            self._add("ether type arp accept", to)
            self._add(f"tcp dport {but_port} accept", to)
            self._add(f"tcp sport {but_port} accept", to)
        return self._add("drop", to)

    def reject(
        self, port: int, *, protocol: str = "tcp", answer: str = "icmpx port-unreachable",
        to: Host | None = None,
    ) -> Link:  # fmt: skip
        """The receiving host's firewall says no: `answer` is "icmpx port-unreachable",
        "icmpx admin-prohibited" or "tcp reset"."""
        for sender, receiver, one, _ in self._ways(to):
            for address in sender.addresses[one]:
                family = "ip6" if ":" in address else "ip"
                rule = f"{family} saddr {address} {protocol} dport {port} reject with {answer}"
                self.rejects.append((receiver, rule))
        self.changed()
        return self

    def restore(self) -> Link:
        self.clear()
        self.changed()
        return self

    def clear(self) -> None:
        """Without a word to the hub: the caller says it once for all links."""
        for relay in self.relays:
            relay.close()
        for faults in (self.rules, self.rejects, self.relays):
            faults.clear()

    def _add(self, what: str, to: Host | None) -> Link:
        if self.relays:
            raise LabError("a delay does not add up with other faults of a link")
        for sender, receiver, one, other in self._ways(to):
            ports = port_name(sender.name, one), port_name(receiver.name, other)
            self.rules.append(f'iifname "{ports[0]}" oifname "{ports[1]}" {what}')
        self.changed()
        return self

    def _ways(self, to: Host | None) -> list[tuple[Host, Host, str, str]]:
        """Sender, receiver, and the interfaces of each that meet on one switch."""
        return [
            (sender, receiver, one.name, other.name)
            for sender, receiver in ((self.a, self.b), (self.b, self.a))
            if to in (None, receiver)
            for one, other in product(sender.interfaces.values(), receiver.interfaces.values())
            if not one.bridge and not other.bridge and one.switch == other.switch
            and self.interface in (None, one.name)
        ]  # fmt: skip


def _match(port: int | None, protocol: str) -> str:
    if port is None:
        return f"meta l4proto {protocol}" if protocol else ""
    return f"meta l4proto {protocol or '{ tcp, udp }'} th dport {port}"
