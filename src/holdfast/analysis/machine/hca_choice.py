"""The RDMA ports NCCL takes, and what NCCL_IB_HCA makes of them.

Read from NVIDIA/nccl src/transport/net_ib.cc (net_ib/init.cc from 2.29 on) and src/misc/utils.cc,
2.18 to 2.30.7: of every device each port that is ACTIVE, is InfiniBand or Ethernet, and whose
device and number the filter admits. Entries are `<device>[:port[:rail[:plane]]]`; without `=` a
name is a prefix. A filter that admits nothing is no error: NCCL says `No device found` at INFO and
uses TCP.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from holdfast.analysis.machine import Fact, RdmaPort, nic_filter
from holdfast.analysis.machine.interface_choice import Passed

HCA = "NCCL_IB_HCA"
ACTIVE = "ACTIVE"
LINK_LAYERS = ("InfiniBand", "Ethernet")
"""others, such as EFA's, need a network plugin, which has filters of its own"""


class HcaEntry(NamedTuple):
    """One entry of the list."""

    name: str
    port: int | None
    """None for every port"""

    def matches(self, port: RdmaPort, *, exact: bool) -> bool:
        same = port.device == self.name if exact else port.device.startswith(self.name)
        return same and self.port in (None, port.number)

    def __str__(self) -> str:
        return self.name if self.port is None else f"{self.name}:{self.port}"


class HcaChoice(Fact, frozen=True):
    taken: tuple[RdmaPort, ...]
    passed: tuple[Passed, ...]
    """every other port: 'mlx5_1:1' and why not"""
    unknown: tuple[str, ...]
    """entries that match no port of this machine, of a list that selects"""
    inactive: tuple[RdmaPort, ...]
    """ports that the filter admits, but that are not ACTIVE"""
    widened: tuple[tuple[str, tuple[str, ...]], ...]
    """entries that are a whole name here, and the longer names that they select as well"""


def choose(ports: Sequence[RdmaPort], value: str) -> HcaChoice:
    """What NCCL makes of these ports; '' stands for no filter."""
    wanted = nic_filter.read_nccl(value)
    entries = read_entries(value)

    def admits(port: RdmaPort) -> bool:
        listed = not entries or any(e.matches(port, exact=wanted.exact) for e in entries)
        return listed != wanted.exclude

    admitted = [port for port in ports if admits(port)]
    reason = f"{'excluded by' if wanted.exclude else 'does not match'} {HCA}={value}"
    return HcaChoice(
        taken=tuple(port for port in admitted if not _unusable(port)),
        passed=tuple(
            Passed(name=port.name, why=_unusable(port) if admits(port) else reason)
            for port in ports
            if _unusable(port) or not admits(port)
        ),
        unknown=tuple(
            str(entry)
            for entry in entries
            if not wanted.exclude and not any(entry.matches(p, exact=wanted.exact) for p in ports)
        ),
        inactive=tuple(port for port in admitted if port.state != ACTIVE),
        widened=() if wanted.exact or wanted.exclude else tuple(_widened(entries, ports)),
    )


def _unusable(port: RdmaPort) -> str:
    """Why NCCL takes no notice of a port, whatever the filter; '' when it does."""
    if port.state != ACTIVE:
        return f"{port.state}, not {ACTIVE}"
    return "" if port.link_layer in LINK_LAYERS else f"link layer {port.link_layer}"


def read_entries(value: str) -> tuple[HcaEntry, ...]:
    """Names with their ports; what follows a port, NCCL does not select by."""
    rest = value.removeprefix("^").removeprefix("=")
    entries = []
    for text in rest.split(","):
        name, _, more = text.partition(":")
        if name:
            port = more.partition(":")[0]
            entries.append(HcaEntry(name, _number(port) if port else None))
    return tuple(entries)


def _number(text: str) -> int:
    """As atoi(3) reads it: what is no number is 0, a port that no device has."""
    found = re.match(r"\s*([+-]?\d+)", text)
    return int(found[1]) if found else 0


def _widened(
    entries: Iterable[HcaEntry], ports: Sequence[RdmaPort]
) -> Iterable[tuple[str, tuple[str, ...]]]:
    devices = tuple(dict.fromkeys(port.device for port in ports))
    for entry in entries:
        if entry.name in devices:
            longer = tuple(d for d in devices if d.startswith(entry.name) and d != entry.name)
            if longer:
                yield entry.name, longer
