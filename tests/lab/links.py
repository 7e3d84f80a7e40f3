"""What happens on the way between two hosts: rules of the hub, which the hosts cannot see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.lab.interfaces import port_name

if TYPE_CHECKING:
    from tests.lab.host import Host


@dataclass
class Link:
    """The path between two hosts, both ways; `to` limits a fault to packets towards that host.
    Faults add up until `restore`."""

    a: Host
    b: Host
    interface: str | None
    changed: Callable[[], None]
    rules: list[str] = field(default_factory=list)
    rejects: list[tuple[Host, str]] = field(default_factory=list)

    def drop(self, port: int | None = None, *, protocol: str = "", to: Host | None = None) -> Link:
        """Silently; with `port` what is sent to that port, else everything (or `protocol`)."""
        return self._add(f"{_match(port, protocol)} drop", to)

    def loss(self, percent: int, *, to: Host | None = None) -> Link:
        return self._add(f"numgen random mod 100 < {percent} drop", to)

    def mtu(self, size: int, *, to: Host | None = None) -> Link:
        """Larger packets vanish, as on a switch whose port is smaller than the hosts': nobody is
        told. Give the hosts a larger MTU."""
        self._add(f"ip length > {size} drop", to)
        return self._add(f"ip6 length > {size - 40} drop", to)

    def cut(self, *, to: Host | None = None) -> Link:
        """Address resolution too."""
        return self._add("drop", to)

    def reject(
        self, port: int, *, protocol: str = "tcp", answer: str = "icmpx port-unreachable",
        to: Host | None = None,
    ) -> Link:  # fmt: skip
        """The receiving host's firewall says no: `answer` is "icmpx port-unreachable",
        "icmpx admin-prohibited" or "tcp reset"."""
        for receiver, sender in ((self.a, self.b), (self.b, self.a)):
            if to in (None, receiver):
                for addresses in sender.addresses.values():
                    for address in addresses:
                        family = "ip6" if ":" in address else "ip"
                        rule = f"{family} saddr {address} {protocol} dport {port}"
                        self.rejects.append((receiver, f"{rule} reject with {answer}"))
        self.changed()
        return self

    def restore(self) -> Link:
        self.rules.clear()
        self.rejects.clear()
        self.changed()
        return self

    def _add(self, what: str, to: Host | None) -> Link:
        for sender, receiver in ((self.a, self.b), (self.b, self.a)):
            if to in (None, receiver):
                for one, other in self._ports(sender, receiver):
                    self.rules.append(f'iifname "{one}" oifname "{other}" {what}')
        self.changed()
        return self

    def _ports(self, sender: Host, receiver: Host) -> list[tuple[str, str]]:
        return [
            (port_name(sender.name, one.name), port_name(receiver.name, other.name))
            for one in sender.interfaces.values()
            for other in receiver.interfaces.values()
            if not one.bridge and not other.bridge and one.switch == other.switch
            and self.interface in (None, one.name)
        ]  # fmt: skip


def _match(port: int | None, protocol: str) -> str:
    if port is None:
        return f"meta l4proto {protocol}" if protocol else ""
    return f"meta l4proto {protocol or '{ tcp, udp }'} th dport {port}"
