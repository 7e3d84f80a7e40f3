"""Which RDMA ports NCCL will use on a machine, and why none where there are none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.analysis.machine import (
    Gid,
    MachineFacts,
    RdmaCard,
    RdmaPort,
    gid_choice,
    hca_choice,
    known,
)
from holdfast.analysis.machine.rdma import NO_DRIVER, NO_LIBRARY
from holdfast.analysis.nccl_numbers import nccl_int

INFINIBAND, ROCE = "InfiniBand", "Ethernet"
EFA = "efa"
"""driver of Amazon's card, which NCCL reaches by a plugin and libfabric only"""


class RdmaUse(NamedTuple):
    ports: tuple[RdmaPort, ...]
    why: str
    """why there are none: '' when there are"""


def switched_off(facts: MachineFacts) -> str:
    """The setting that keeps NCCL from using RDMA: 'NCCL_IB_DISABLE=1'; '' without one."""
    disabled, network = facts.setting("NCCL_IB_DISABLE"), facts.setting("NCCL_NET")
    if disabled is not None and nccl_int(disabled.value):
        return f"NCCL_IB_DISABLE={disabled.value}"
    if network is not None and network.value.lower() == "socket":
        return f"NCCL_NET={network.value}"
    return ""


def plugin(facts: MachineFacts) -> str:
    """The setting that names a network plugin: 'NCCL_NET=AWS Libfabric'; '' without one."""
    network = facts.setting("NCCL_NET")
    if network is None or network.value.lower() in ("", "ib", "socket"):
        return ""
    return f"NCCL_NET={network.value}"


def admitted(facts: MachineFacts) -> tuple[RdmaPort, ...]:
    """The ACTIVE ports that NCCL_IB_HCA admits, whether or not they can be opened."""
    setting = facts.setting(hca_choice.HCA)
    return hca_choice.choose(known(facts.rdma_ports), setting.value if setting else "").taken


def use(facts: MachineFacts) -> RdmaUse:
    """What NCCL's own RDMA transport will use; a plugin (EFA) is not known."""
    if off := switched_off(facts):
        return RdmaUse((), off)
    if not known(facts.rdma_ports):
        return RdmaUse((), "no RDMA card")
    taken = admitted(facts)
    if not taken:
        return RdmaUse((), "no active RDMA port that NCCL may use")
    cards = {card.name: card for card in known(facts.rdma_cards)}
    usable = tuple(p for p in taken if p.device not in cards or cards[p.device].is_usable)
    return RdmaUse(usable, "" if usable else _why_unusable(taken, cards))


def _why_unusable(taken: Sequence[RdmaPort], cards: dict[str, RdmaCard]) -> str:
    seen = {cards[port.device].open_error or cards[port.device].verbs_error for port in taken}
    if seen == {NO_LIBRARY}:
        return "libibverbs is not installed"
    if seen == {NO_DRIVER}:
        return "libibverbs has no driver for the cards"
    return f"the cards cannot be opened ({', '.join(sorted(seen))})"


def is_efa_only(facts: MachineFacts) -> bool:
    cards = known(facts.rdma_cards)
    return bool(cards) and all(card.driver == EFA for card in cards)


class PortAddress(NamedTuple):
    """A RoCE port, and the address that NCCL will take of it."""

    port: RdmaPort
    gid: Gid | None
    """None where it is an empty entry of the table"""

    @property
    def reaches_others(self) -> bool:
        return self.gid is not None and not gid_choice.is_link_local(self.gid)


def roce_addresses(facts: MachineFacts, ports: Sequence[RdmaPort]) -> list[PortAddress]:
    settings = gid_choice.settings_of(facts)
    return [
        PortAddress(port, gid_choice.choose(port.gids, settings))
        for port in ports
        if port.link_layer == ROCE
    ]


def is_worth_using(facts: MachineFacts, port: RdmaPort) -> bool:
    """An InfiniBand port, or one of RoCE with an address that reaches others: virtual machines of
    some clouds have cards that do RoCE in name only, and give them none."""
    if port.link_layer == INFINIBAND:
        return True
    return all(one.reaches_others for one in roce_addresses(facts, [port]))
