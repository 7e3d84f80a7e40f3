"""Which interfaces a library takes for its connections, and why not the others.

`nccl_choice` and `gloo_choice` answer it by the rules of the installed versions. Both libraries
walk the list of getifaddrs(3): the IPv4 addresses of all interfaces in the kernel's order, then
all IPv6 addresses. The kernel's order is that of `MachineFacts.interfaces`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import NamedTuple

from holdfast import text
from holdfast.analysis.machine import Address, Fact, Interface, addresses
from holdfast.findings import Evidence


class ChoiceRule(enum.Enum):
    """The rule that decided."""

    NAMED = "named by a setting"
    """NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME"""
    IB_FIRST = "ib* comes first"
    COMM_ID = "in the subnet of NCCL_COMM_ID"
    ORDINARY = "any that does not come last"
    """not docker*, lo or (from NCCL 2.28.3 on) virbr*"""
    DOCKER = "docker* before lo"
    LOOPBACK = "lo"
    VIRBR = "virbr* after all others"
    OWN_NAME = "address of the machine's own name"
    """Gloo without GLOO_SOCKET_IFNAME"""
    FALLBACK = "loopback, because the own name has no usable address"
    """Gloo, with a warning"""


class Taken(Fact, frozen=True):
    name: str
    """of the interface; of an alias its label, 'eth0:1', as the library sees it"""
    address: str


class Passed(Fact, frozen=True):
    name: str
    why: str


class InterfaceChoice(Fact, frozen=True):
    """What one library will take on one machine."""

    library: str
    """'NCCL bootstrap' (one address, announced to the other ranks), 'NCCL sockets' or 'Gloo'"""
    taken: tuple[Taken, ...]
    """empty exactly where `error` is not"""
    passed: tuple[Passed, ...]
    """every other interface"""
    error: str
    """'' or how the library will fail, with its own words"""
    rule: ChoiceRule
    because: str
    """the rule in words: 'first interface that is not docker*, lo or virbr*'"""

    @property
    def sentence(self) -> str:
        """'NCCL will use eth0 (10.0.0.5): first interface that is not docker*, lo or virbr*'"""
        program = self.library.partition(" ")[0]
        if self.error:
            return f"{program} will fail: {self.error}"
        used = text.names(f"{one.name} ({one.address})" for one in self.taken)
        return f"{program} will use {used}: {self.because}"

    @property
    def evidence(self) -> Evidence:
        """Every interface of the machine, and what became of it; those of one fate together."""
        fates: dict[str, list[str]] = {}
        for one in self.taken:
            fates.setdefault("taken", []).append(f"{one.name} ({one.address})")
        for passed in self.passed:
            fates.setdefault(passed.why, []).append(passed.name)
        words = [f"{text.names(names)}: {why}" for why, names in fates.items()]
        return Evidence(
            quote="; ".join(words) or "there is no interface",
            source=f"simulated: {self.library}",
        )


class Listed(NamedTuple):
    """One entry of getifaddrs."""

    interface: Interface
    address: Address

    @property
    def name(self) -> str:
        return self.address.label or self.interface.name

    @property
    def taken(self) -> Taken:
        return Taken(name=self.name, address=self.address.ip)


def listed(interfaces: Iterable[Interface]) -> list[Listed]:
    """Every address of the machine in the order of getifaddrs."""
    entries = [Listed(one, address) for one in interfaces for address in one.addresses]
    return sorted(entries, key=lambda entry: addresses.is_ipv6(entry.address.ip))
