"""RDMA cards and their ports, as the kernel and libibverbs show them."""

from __future__ import annotations

import msgspec

from holdfast.analysis.machine.fact import Fact


class Gid(Fact, frozen=True, array_like=True):
    """One address in the table of an RDMA port; entries that are empty are left out."""

    index: int
    gid: str
    """'fe80:0000:0000:0000:…', as the kernel writes it"""
    kind: str
    """'IB/RoCE v1', 'RoCE v2'; '' where the kernel refuses to say: it is of another network
    namespace"""
    interface: str = ""


class RdmaCard(Fact, frozen=True):
    """An RDMA device (HCA) as a whole."""

    name: str
    driver: str
    """'mlx5_core', 'bnxt_en', 'efa', 'irdma'…; '' for a virtual one such as rxe"""
    bus_id: str
    """'' for a virtual one"""
    numa: int | None
    firmware: str
    uverbs: str
    """'/dev/infiniband/uverbs0'; '' when the kernel names none"""
    open_error: str
    """errno's name when this user could not open it: 'ENOENT', 'EACCES'; '' when it could"""
    board: str = ""
    """the same for all cards of one model: 'MT_0000000838'"""
    virtual_function: bool = False
    """a part of another card of this machine, made for a guest or a container"""
    verbs_error: str = ""
    """what libibverbs, through which NCCL works, made of it: NO_LIBRARY, NO_DRIVER, NO_ANSWER or
    errno's name; '' when it opened the card, or was not asked because this user cannot"""
    active_mtu: dict[int, int] = msgspec.field(default_factory=dict)
    """port -> bytes; by libibverbs, the kernel shows it nowhere"""

    @property
    def is_usable(self) -> bool:
        """Can a program of this user work with it?"""
        return not self.open_error and not self.verbs_error


NO_LIBRARY, NO_DRIVER, NO_ANSWER = "no library", "no driver", "no answer"
"""libibverbs is not installed; it has no user-space driver for this card; it did not return"""


class RdmaPort(Fact, frozen=True):
    """A port of an RDMA device (HCA), as /sys/class/infiniband shows it."""

    device: str
    number: int
    state: str
    """'ACTIVE', 'DOWN', 'INIT', 'ARMED'…"""
    link_layer: str
    """'InfiniBand' or 'Ethernet' (RoCE); 'Unknown' of EFA"""
    physical_state: str = ""
    """'LinkUp', 'Polling', 'Disabled', 'Sleep'…; '' where the kernel does not say"""
    rate: float | None = None
    """Gb/s, of all lanes"""
    rate_text: str = ""
    """'400 Gb/sec (4X NDR)'"""
    lid: int | None = None
    subnet_manager_lid: int | None = None
    interfaces: tuple[str, ...] = ()
    """network interfaces of the same port"""
    gids: tuple[Gid, ...] = ()
    counters: dict[str, int] = msgspec.field(default_factory=dict)
    """of errors, those that are not zero: 'symbol_error', 'link_downed', 'packet_seq_err'…"""
    growing: dict[str, int] = msgspec.field(default_factory=dict)
    """by how much they grew between two looks"""

    @property
    def name(self) -> str:
        return f"{self.device}:{self.number}"


def grown(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """By how much; one that fell was reset in between and tells nothing."""
    changes = {name: after[name] - before.get(name, 0) for name in after}
    return {name: change for name, change in changes.items() if change > 0}
