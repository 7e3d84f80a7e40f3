"""What RDMA ports of a node did since the ranks were started."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.analysis.machine import RdmaPort
from holdfast.analysis.machine.rdma import grown

GONE = "gone"
"""state of a port whose card the kernel no longer shows"""
ACTIVE = "ACTIVE"


class PortChange(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A port that is not what it was, or has counted errors since."""

    port: str
    """'mlx5_3:1'"""
    state: str
    state_before: str
    rate: str = ""
    """'400 Gb/sec (4X NDR)'"""
    rate_before: str = ""
    errors: dict[str, int] = msgspec.field(default_factory=dict)
    """counter -> how many since"""

    @property
    def went_down(self) -> bool:
        return self.state_before == ACTIVE != self.state

    @property
    def slowed_down(self) -> bool:
        return self.rate != self.rate_before and self.state == self.state_before == ACTIVE


def changes(before: Iterable[RdmaPort], now: Iterable[RdmaPort]) -> tuple[PortChange, ...]:
    """Of the ports that were there before; those with nothing to say are left out."""
    later = {port.name: port for port in now}
    found = [_change(port, later.get(port.name)) for port in before]
    return tuple(one for one in found if one.errors or one.state != one.state_before
                 or one.slowed_down)  # fmt: skip


def _change(before: RdmaPort, now: RdmaPort | None) -> PortChange:
    return PortChange(
        port=before.name,
        state=now.state if now else GONE,
        state_before=before.state,
        rate=now.rate_text if now else "",
        rate_before=before.rate_text,
        errors=grown(before.counters, now.counters) if now else {},
    )
