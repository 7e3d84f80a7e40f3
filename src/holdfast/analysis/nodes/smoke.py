"""What the smoke test between nodes saw: pairs in rounds, then all nodes together."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from holdfast import text
from holdfast.analysis.machine import Fact, MachineFacts, NcclLink, Unread
from holdfast.analysis.machine.link_speeds import rdma_speed
from holdfast.analysis.machine.nccl_diagnostics import DiagnosticKind, DiagnosticLine
from holdfast.analysis.nodes.isolation import Isolation, JudgedNode, PairOutcome, PairResult

RDMA_WAYS = ("IB", "IBext")
"""NCCL's names of networks whose cards are under /sys/class/infiniband"""
SLOW_ALONE = 2.0
"""times the median of all nodes; nodes of one job are of one kind"""


class LeftOut(Fact, frozen=True):
    """A node whose ranks did not take part."""

    name: str
    why: str
    broken: bool
    """torch is there and does not start; False: nothing was learnt about this node"""


class GroupTest(Fact, frozen=True):
    """All nodes together, less those that would spoil it."""

    nodes: tuple[str, ...]
    outcome: PairOutcome
    speed: float | None
    """bus bandwidth, bytes a second"""
    why: str
    """of a failure; why it was not run"""


class NodeNetwork(Fact, frozen=True):
    """How NCCL sent from one node to others, by its own words."""

    way: str
    """'IB', 'Socket', 'AWS Libfabric'…"""
    cards: int
    """how many of the node's cards it used"""
    gpu_direct: bool
    """cards read and write GPU memory by themselves, on every link"""


def network_of(links: Iterable[NcclLink]) -> NodeNetwork | None:
    """None where NCCL used no network, or did not say so."""
    used = [link for link in links if link.transport == "NET"]
    if not used:
        return None
    return NodeNetwork(
        way=used[0].way,
        cards=len({link.device for link in used}),
        gpu_direct=all(link.gpu_direct for link in used),
    )


def cards_speed(facts: MachineFacts, network: NodeNetwork) -> float | None:
    """What the cards in use carry together, bytes a second, each taken for the slowest that is up:
    which of them they are is known to NCCL alone. None without RDMA."""
    ports = () if isinstance(facts.rdma_ports, Unread) else facts.rdma_ports
    rates = [port.rate for port in ports if port.state == "ACTIVE" and port.rate]
    if not network.way.startswith(RDMA_WAYS) or not rates:
        return None
    return network.cards * rdma_speed(min(rates))


class SmokeBetween(Fact, frozen=True):
    backend: str
    """'gloo' or 'nccl'"""
    why_backend: str
    """why it is not NCCL; '' when it is"""
    ranks: int
    """all of them"""
    left_out: tuple[LeftOut, ...]
    rounds: tuple[tuple[PairResult, ...], ...]
    isolation: Isolation
    group: GroupTest
    slow_alone: tuple[JudgedNode, ...]
    """slow at work that needs no network"""
    diagnostics: tuple[DiagnosticLine, ...] | Unread
    """NCCL's own"""
    seconds: float
    networks: dict[str, NodeNetwork] = msgspec.field(default_factory=dict)
    """node -> what NCCL used there; nothing with Gloo"""


def tests_of(smoke: SmokeBetween, names: Sequence[str]) -> list[str]:
    """What the tests brought that one node took part in, or two of several; failures first."""
    wanted = {*names}
    found = [
        one
        for results in smoke.rounds
        for one in results
        if len(one.pair & wanted) >= min(2, len(wanted))
    ]
    found.sort(key=lambda one: one.outcome is PairOutcome.PASSED)
    return [_in_words(one) for one in found]


def nccl_faults(smoke: SmokeBetween, checks: Sequence[str]) -> list[DiagnosticLine]:
    """What NCCL's own diagnostics found in these checks; nothing where they did not run."""
    lines = () if isinstance(smoke.diagnostics, Unread) else smoke.diagnostics
    return [one for one in lines if one.kind is DiagnosticKind.FAULT and one.check in checks]


def _in_words(one: PairResult) -> str:
    speed = f", {text.bandwidth(one.speed)}" if one.speed else ""
    why = f": {one.why}" if one.why else ""
    return f"{one.first} and {one.second} {one.outcome.value}{speed}{why}"


def slow_alone(own_seconds: Mapping[str, float]) -> tuple[JudgedNode, ...]:
    """Nodes that take far longer than the median for a fixed piece of work, by their best time."""
    if len(own_seconds) < 3:
        return ()
    median = statistics.median_low(own_seconds.values())
    return tuple(
        JudgedNode(
            name=name,
            why=f"a product of matrices takes it {took * 1e3:.2g} ms at best, the median of "
            f"{len(own_seconds)} nodes is {median * 1e3:.2g} ms",
        )
        for name, took in own_seconds.items()
        if took > SLOW_ALONE * median
    )
