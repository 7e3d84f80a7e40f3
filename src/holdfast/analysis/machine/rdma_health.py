"""What is wrong with RDMA ports by their own words: down among their like, not configured by a
subnet manager, counting errors right now, slower than the others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from holdfast.analysis.machine import RdmaCard, RdmaPort

ACTIVE, DOWN = "ACTIVE", "DOWN"
CONFIGURING = ("INIT", "ARMED")
"""the link is up, and the port waits for its subnet manager"""
DISABLED = "Disabled"
"""physical state: of InfiniBand by an administrator, of Ethernet whenever there is no carrier"""
RAILS = 4
"""from so many cards of one model on, one that is down is a rail that is missing"""
LINK_ERRORS = {
    "symbol_error": 10,
    "link_error_recovery": 1,
    "link_downed": 1,
    "port_rcv_errors": 1,
    "local_link_integrity_errors": 1,
    "excessive_buffer_overrun_errors": 1,
    "rx_icrc_encapsulated": 1,
}
"""counter -> growth between two looks that no good link has; a 100 Gb/s link without error
correction may count a symbol every ten seconds"""
SINGLE_LANE = re.compile(r"\(1X\b")


class DownAmongOthers(NamedTuple):
    """Ports that are down while most others of the same kind of card are active."""

    ports: tuple[RdmaPort, ...]
    active: tuple[RdmaPort, ...]
    is_rail: bool
    """they are as many as the GPUs, or a multiple: one for each"""


def down_among_others(
    ports: Iterable[RdmaPort], cards: Mapping[str, RdmaCard], gpus: int
) -> list[DownAmongOthers]:
    """By model of card. Half of them or more are spare ports; and so are an InfiniBand port that
    was disabled, and parts of a card that no guest uses."""
    found = []
    for group in _by_model(ports, cards):
        wanted = [port for port in group if not _is_spare(port, cards[port.device])]
        down = tuple(port for port in wanted if port.state == DOWN)
        active = tuple(port for port in wanted if port.state == ACTIVE)
        if down and len(down) * 2 < len(wanted):
            rail = gpus >= RAILS and len(wanted) % gpus == 0
            found.append(DownAmongOthers(down, active, rail))
    return found


def _by_model(ports: Iterable[RdmaPort], cards: Mapping[str, RdmaCard]) -> Iterable[list[RdmaPort]]:
    """Cards that do not say their model are compared with none."""
    groups: dict[tuple[str, str], list[RdmaPort]] = {}
    for port in ports:
        card = cards.get(port.device)
        if card is not None and card.board:
            groups.setdefault((card.board, port.link_layer), []).append(port)
    return groups.values()


def _is_spare(port: RdmaPort, card: RdmaCard) -> bool:
    disabled = port.link_layer == "InfiniBand" and port.physical_state == DISABLED
    return disabled or card.virtual_function


def unconfigured(ports: Iterable[RdmaPort]) -> list[RdmaPort]:
    return [p for p in ports if p.link_layer == "InfiniBand" and p.state in CONFIGURING]


def failing_links(ports: Iterable[RdmaPort]) -> list[RdmaPort]:
    return [port for port in ports if link_errors(port)]


def link_errors(port: RdmaPort) -> dict[str, int]:
    """Those that grow as on no good link."""
    return {
        name: growth
        for name, growth in port.growing.items()
        if growth >= LINK_ERRORS.get(name, growth + 1)
    }


class SlowPort(NamedTuple):
    port: RdmaPort
    usual: RdmaPort
    """one of the others of its model, which are faster"""


def slower_than_their_like(
    ports: Sequence[RdmaPort], cards: Mapping[str, RdmaCard]
) -> list[SlowPort]:
    """Active ports below the rate that most cards of the same model have here."""
    known = [port for port in ports if port.state == ACTIVE and port.rate]
    found = []
    for group in _by_model(known, cards):
        best = max(group, key=lambda port: port.rate or 0)
        slow = [port for port in group if (port.rate or 0) < (best.rate or 0)]
        if len(slow) * 2 < len(group):
            found += [SlowPort(port, best) for port in slow]
    return found


def on_one_lane(ports: Iterable[RdmaPort]) -> list[RdmaPort]:
    """InfiniBand links that lost lanes; 2X is usual, a cable that is split between two cards."""
    return [
        port
        for port in ports
        if port.link_layer == "InfiniBand"
        and port.state == ACTIVE
        and SINGLE_LANE.search(port.rate_text)
    ]
