"""Does a path carry packets as large as both ends allow? One way; the way back is another path."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import NamedTuple

from holdfast.analysis.machine import MachineFacts, Unread
from holdfast.analysis.nodes.facts import NodesFacts
from holdfast.analysis.nodes.loss import Losses
from holdfast.analysis.nodes.paths import PathSizes, SizeProbe

CHANCE = 1e-3
"""a lost packet is taken for a matter of its size when mere loss is less likely than that"""
STALLS_TCP = 0.05
"""with such loss, either way, TCP may wait for seconds with nothing acknowledged"""


class SizeVerdict(enum.Enum):
    FINE = "fine"
    """all that both ends allow arrives"""
    HANGS = "hangs"
    """large packets vanish, and so do large TCP messages"""
    VANISHES = "vanishes"
    """large packets vanish, TCP finds its way"""
    UNTRIED = "untried"
    """large packets vanish; TCP was not tried"""
    TOLD = "told"
    """a router said that they are too big: path MTU discovery works"""
    TCP_HANGS = "TCP hangs"
    """every packet size arrives, and large TCP messages do not: not a matter of the MTU"""
    LOSSY = "lossy"
    """too much is lost to tell"""
    UNKNOWN = "unknown"
    """nothing arrived at all"""


class SizeJudgement(NamedTuple):
    path: PathSizes
    verdict: SizeVerdict
    passes: int | None
    """the largest packet that arrived; None where none did"""
    fails: int | None
    """the smallest that both ends allow and that did not arrive"""
    message: int | None
    """the smallest TCP message that did not arrive, while smaller ones did"""


def interface_mtu(machine: MachineFacts, name: str) -> int | None:
    interfaces = () if isinstance(machine.interfaces, Unread) else machine.interfaces
    return next((one.mtu for one in interfaces if one.name == name), None)


def judge_all(facts: NodesFacts, sizes: Iterable[PathSizes], losses: Losses) -> list[SizeJudgement]:
    """Every path between two nodes that are here."""
    machines = {node.name: node.facts for node in facts.nodes}
    return [
        judge(
            path,
            interface_mtu(machines[path.target.node], path.target.interface),
            losses.rate(path.source, path.target.node),
            losses.rate(path.target.node, path.source),
        )
        for path in sizes
        if path.source != path.target.node and {path.source, path.target.node} <= set(machines)
    ]


def judge(path: PathSizes, target_mtu: int | None, loss: float, loss_back: float) -> SizeJudgement:
    """`loss`: the share of small packets that get lost the same way; of TCP's acknowledgements
    `loss_back` get lost."""
    passes = max((one.bytes for one in path.datagrams if one.arrived), default=None)
    limit = min(path.mtu, target_mtu or path.mtu)
    lost = [one for one in path.datagrams if passes and passes < one.bytes <= limit]
    silent = [one for one in lost if not one.error]
    stuck = _stuck_message(path)
    fails = min((one.bytes for one in lost), default=None)

    def said(verdict: SizeVerdict) -> SizeJudgement:
        return SizeJudgement(path, verdict, passes, fails, stuck.bytes if stuck else None)

    if passes is None and not any(one.arrived for one in path.messages):
        return said(SizeVerdict.UNKNOWN)
    if silent and loss ** max(one.tries for one in silent) > CHANCE:
        return said(SizeVerdict.LOSSY)
    if stuck:
        explained = bool(silent) or passes is None or passes < path.mtu
        if not explained and max(loss, loss_back) > STALLS_TCP:
            return said(SizeVerdict.LOSSY)
        return said(SizeVerdict.HANGS if explained else SizeVerdict.TCP_HANGS)
    if silent:
        tried = any(one.arrived for one in path.messages)
        return said(SizeVerdict.VANISHES if tried else SizeVerdict.UNTRIED)
    return said(SizeVerdict.TOLD if lost or path.told_mtu else SizeVerdict.FINE)


def _stuck_message(path: PathSizes) -> SizeProbe | None:
    """The smallest that hung although smaller ones arrived. Loss slows a message down, and part of
    it is acknowledged; in a black hole next to nothing is."""
    smallest = min((one.bytes for one in path.messages if one.arrived), default=None)
    hung = [
        one
        for one in path.messages
        if smallest is not None
        and not one.arrived
        and one.bytes > smallest
        and (one.acknowledged is None or one.acknowledged <= path.mtu)
    ]
    return min(hung, key=lambda one: one.bytes, default=None)
