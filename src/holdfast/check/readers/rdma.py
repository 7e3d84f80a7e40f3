"""RDMA cards and their ports: state, addresses, errors, and whether this user can open them."""

from __future__ import annotations

import time

import msgspec

from holdfast.analysis.machine import Plan, RdmaCard, RdmaPort
from holdfast.analysis.machine.rdma import grown
from holdfast.system import rdma, rdma_verbs

BETWEEN_LOOKS = 0.3
"""seconds; a bad cable of 100 Gb/s or more shows many errors in that time, a good one none"""
LIBRARY = "NCCL_IBVERBS_LIB"


def read_rdma_devices(_plan: Plan, root: str = "/") -> tuple[str, ...]:
    return rdma.names(root)


def read_rdma_ports(
    _plan: Plan, root: str = "/", *, between: float = BETWEEN_LOOKS
) -> tuple[RdmaPort, ...]:
    """With a second look only where a port has ever counted an error."""
    first = rdma.ports(root)
    if not any(port.counters for port in first):
        return first
    time.sleep(between)
    later = {port.name: port.counters for port in rdma.ports(root)}
    return tuple(
        msgspec.structs.replace(port, growing=grown(port.counters, later.get(port.name, {})))
        for port in first
    )


def read_rdma_cards(plan: Plan, root: str = "/") -> tuple[RdmaCard, ...]:
    cards = [
        msgspec.structs.replace(card, open_error=rdma_verbs.open_error(card.uverbs, root))
        for card in rdma.cards(root)
    ]
    named = plan.environment.get(LIBRARY, "")
    libraries = (*((named,) if named else ()), *rdma_verbs.LIBRARIES)
    return tuple(rdma_verbs.opened(cards, libraries))
