"""What is known of a node of the job at one moment, and of the connections between nodes.

Not heard is not silent: what a node said last is as old as `heard_at`, and its ranks are unknown
while it is late or lost.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.analysis.machine import Unread
from holdfast.analysis.nodes import PathLoss, PathSizes, Reached
from holdfast.analysis.scene.cpu import Processor, Scheduler
from holdfast.analysis.scene.gpu import GpuEvent, GpuLook
from holdfast.analysis.scene.rdma import PortChange

Hearing = Literal["heard", "late", "lost"]
Farewell = Literal["", "closed", "silent", "left"]
"""how a node was lost: its kernel closed the connection (its launcher ended, the machine is up or
shuts down), nothing comes any more, or its launcher said that it leaves"""


class NodeSignal(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The base of what is seen of nodes."""


class RankConnection(NodeSignal, frozen=True):
    """The kernel's view of one TCP connection from a rank to another node; those that are well are
    told as one for each address."""

    rank: int
    node: str
    """at its other end; '' when no node of the job has that address"""
    local: str
    peer: str
    peer_port: int
    """0 where several are told as one"""
    unsent: int
    """bytes the rank wrote that the other side has not acknowledged"""
    backoff: int
    """times in a row that the retransmission timer ran out; 0 for a healthy connection, and for one
    whose other end is alive and does not read"""
    retransmitted: int
    """segments sent again since the look before"""
    sent: int
    """segments sent since the look before; 0 when unknown"""
    segment: int
    """the largest segment it sends, bytes"""
    unanswered: float = 0.0
    """seconds for which it has surely sent the same again without an answer; 0 while backoff is"""
    arrived: int = 0
    """segments that came from the other end since the look before, wanted or not; of one that gets
    no answer, since that began: what comes shows that the way back passes"""
    connecting: bool = False
    """it waits for an answer to its first packet"""


class NodeView(NodeSignal, frozen=True):
    """One node at one moment; all times are the coordinator's."""

    name: str
    ranks: tuple[int, ...]
    hearing: Hearing = "heard"
    heard_at: float = 0.0
    """when the newest report was made"""
    silent: float = 0.0
    """seconds since anything was heard of it"""
    farewell: Farewell = ""
    farewell_words: str = ""
    """what was seen: 'Connection reset by peer', 'nothing for 7.6 s', 'told to stop by SIGTERM'"""
    machine_answers: bool | None = None
    """asked after it was lost: its kernel still answers; None when that is not known"""
    clock_bound: float = 0.0
    """seconds: its times are right within this"""
    coordinates: bool = False
    serves_store: bool = False
    addresses: tuple[str, ...] = ()
    oom_kills: int = -1
    kernel_events: tuple[str, ...] | Unread = ()
    processor: Processor | Unread | None = None
    gpus: tuple[GpuLook, ...] | Unread | None = None
    gpu_events: tuple[GpuEvent, ...] | Unread = ()
    rdma: tuple[PortChange, ...] | Unread | None = None
    scheduler: Scheduler | None = None
    told_to_stop: str = ""
    connections: tuple[RankConnection, ...] | Unread | None = None
    """of its ranks, to other nodes; None before the first look"""


class PathProbes(NodeSignal, frozen=True):
    """What nodes saw of the paths between them when they were last asked to try them."""

    at: float
    """when they began to try, the earliest of these answers"""
    reach: tuple[Reached, ...] = ()
    sizes: tuple[PathSizes, ...] = ()
    losses: tuple[PathLoss, ...] = ()
    silent: tuple[str, ...] = ()
    """nodes that were asked and gave no answer"""
