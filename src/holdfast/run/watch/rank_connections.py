"""The ranks' own connections to other nodes, as the kernel sees them. Needs no root.

A sick link shows here first: what a rank sent is not acknowledged, and TCP sends it again and
again, while the rank itself only seems to wait in a collective.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from holdfast.analysis.machine import Unread
from holdfast.analysis.scene.node_view import RankConnection
from holdfast.system import activity, inet_diag
from holdfast.system.inet_diag import TcpConnection

SYN_SENT = 2
REST = 5.0
"""times as long as a look took, before the next"""
MOST = 64
"""connections with something wrong that are told one by one"""


class _Before(NamedTuple):
    """What a look has seen of a connection."""

    retransmitted: int
    data_out: int
    segments_in: int
    acked: int
    stuck_since: float
    """when it surely had begun to send the same again; 0 when it does not"""
    heard_then: int
    """`segments_in` when that was first seen"""


class RankConnections:
    """Compares each look with the one before, so that it tells what happened in between."""

    def __init__(self) -> None:
        self._before: dict[int, _Before] = {}
        self._pids: dict[int, int] = {}
        self._owners: dict[int, int | None] = {}
        """inode -> rank, or None where none of the ranks holds it"""
        self._told: tuple[RankConnection, ...] | Unread = ()
        self._rest_until = 0.0

    def look(
        self, pids: Mapping[int, int], nodes: Mapping[str, str], now: float
    ) -> tuple[RankConnection, ...] | Unread:
        """As `_look`; where that takes long, what the last one saw, so that most of the launcher's
        time is free: thousands of connections take a tenth of a second and more."""
        if now >= self._rest_until or self._pids != pids:
            began = time.monotonic()
            self._told = self._look(pids, nodes, now)
            self._rest_until = now + REST * (time.monotonic() - began)
        return self._told

    def _look(
        self, pids: Mapping[int, int], nodes: Mapping[str, str], now: float
    ) -> tuple[RankConnection, ...] | Unread:
        """`pids`: rank -> pid; its children count too. `nodes`: address -> the other node that has
        it; connections to any other address are left out. Those that are well are told as one
        for each address: a rank may have thousands. Never raises."""
        try:
            listed = [c for c in inet_diag.connections() if c.peer in nodes and c.inode]
        except (OSError, ValueError) as problem:
            return Unread(why=f"the kernel does not list connections (INET_DIAG): {problem}")
        self._find_owners(listed, pids)
        before, self._before = self._before, {}
        told = []
        for one in listed:
            if (rank := self._owners[one.inode]) is None:
                continue
            last = before.get(one.inode)
            self._before[one.inode] = after = _remember(one, last, now)
            told.append(_told(one, rank, nodes[one.peer], last or after, after, now))
        sick = sorted((c for c in told if c.backoff), key=lambda c: (-c.unanswered, c.rank))
        return (*sick[:MOST], *_summed(c for c in told if not c.backoff))

    def _find_owners(self, listed: Sequence[TcpConnection], pids: Mapping[int, int]) -> None:
        """Only when there is a new one: looking at every descriptor costs more than the rest."""
        known = self._owners if self._pids == pids else {}
        here = {one.inode for one in listed}
        if here <= known.keys():
            self._owners = {inode: known[inode] for inode in here}
        else:
            found = _owners(pids)
            self._owners = {inode: found.get(inode) for inode in here}
        self._pids = dict(pids)


def _summed(well: Iterable[RankConnection]) -> list[RankConnection]:
    by_address: dict[tuple[str, str], RankConnection] = {}
    for one in well:
        so_far = by_address.get((one.peer, one.local))
        by_address[one.peer, one.local] = one if so_far is None else _added(so_far, one)
    return list(by_address.values())


def _added(one: RankConnection, other: RankConnection) -> RankConnection:
    return msgspec.structs.replace(
        one,
        rank=min(one.rank, other.rank),
        peer_port=0,
        unsent=one.unsent + other.unsent,
        retransmitted=one.retransmitted + other.retransmitted,
        sent=one.sent + other.sent,
        arrived=one.arrived + other.arrived,
        segment=max(one.segment, other.segment),
        connecting=one.connecting and other.connecting,
    )


def _owners(pids: Mapping[int, int]) -> dict[int, int]:
    """inode -> the lowest rank that holds it; children hold those of their parents too."""
    found: dict[int, int] = {}
    for rank, pid in sorted(pids.items(), reverse=True):
        for inode in _inodes(pid):
            found[inode] = rank
    return found


def _inodes(pid: int) -> set[int]:
    links = activity.held_files([pid, *activity.descendants(pid)])
    return {int(link[8:-1]) for link in links if link.startswith("socket:[")}


def _remember(one: TcpConnection, before: _Before | None, now: float) -> _Before:
    since, heard_then = 0.0, one.segments_in
    if one.backoff:
        # Each time out doubles the timer: so long it has been out, before the one that runs now.
        since = now - one.timer * (1 - 0.5**one.backoff)
        if before and before.stuck_since and before.acked == one.acked:
            since, heard_then = min(since, before.stuck_since), before.heard_then
    return _Before(one.retransmitted, one.data_out, one.segments_in, one.acked, since, heard_then)


def _told(
    one: TcpConnection, rank: int, node: str, before: _Before, after: _Before, now: float
) -> RankConnection:
    since = after.stuck_since
    return RankConnection(
        rank=rank,
        node=node,
        local=one.local,
        peer=one.peer,
        peer_port=one.peer_port,
        unsent=one.unsent,
        backoff=one.backoff,
        unanswered=round(max(0.0, now - since), 3) if since else 0.0,
        retransmitted=max(0, one.retransmitted - before.retransmitted),
        sent=max(0, one.data_out - before.data_out),
        arrived=one.segments_in - (after.heard_then if since else before.segments_in),
        segment=one.segment,
        connecting=one.state == SYN_SENT,
    )
