"""What a coordinator asks of a node for the smoke test, and what the node answers."""

from __future__ import annotations

import msgspec

from holdfast.analysis.machine import NcclLink

SLACK = 20.0
"""seconds beyond what ranks may take: a busy node must not be taken for a lost one"""


class SmokeRequest(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The base of every request."""

    seconds: float = 0.0
    """that the ranks may take"""

    @property
    def reply_within(self) -> float:
        """A node that has not replied by then is lost."""
        return self.seconds + SLACK


class SmokeReply(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The base of every reply."""


class SmokeWarm(SmokeRequest, frozen=True):
    """Start your ranks and let them import torch, unless they are up from an earlier test."""

    leave_gpus: str = ""
    """why no rank of this node may touch a GPU; said once, at the beginning"""


class SmokeReady(SmokeReply, frozen=True):
    """The ranks of this node are up."""

    torch: str
    nccl: str
    """its version; '' where NCCL cannot be used"""
    why_no_nccl: str
    ranks: int
    """how many it has for NCCL, one for each GPU; for Gloo it is always one"""


class SmokeUnable(SmokeReply, frozen=True):
    """This node cannot take part."""

    why: str
    broken: bool = False
    """torch is there and does not start: that is a fault of this node"""


class SmokeHost(SmokeRequest, frozen=True):
    """Serve the store of a test at this address, on a port that the kernel chooses."""

    address: str


class SmokeHosted(SmokeReply, frozen=True):
    """It is up; a failure to serve it is answered by SmokeMet."""

    port: int


class SmokeMeet(SmokeRequest, frozen=True):
    """Take part in a test."""

    test: str
    """no two tests have the same"""
    address: str
    port: int
    first_rank: int
    """of this node's ranks"""
    ranks: int
    """of this node"""
    world: int
    backend: str
    """'gloo' or 'nccl'"""
    sizes: tuple[int, ...]
    """bytes of each all_reduce; the last one is timed"""


class SmokeMet(SmokeReply, frozen=True):
    """How it went on this node."""

    seconds: float = 0.0
    """of the last size, the best of several calls, on the slowest rank of this node"""
    own_seconds: float = 0.0
    """of a fixed piece of work without any network; again the best, on the slowest rank"""
    error: str = ""
    """'' when all ranks got through; else the most telling words"""
    victim: bool = False
    """these words say only that another rank did not answer"""
    diagnostics: tuple[str, ...] = ()
    """the lines of NCCL's own diagnostics"""
    links: tuple[NcclLink, ...] = ()
    """what NCCL used from and to the ranks of this node"""


class SmokeEnd(SmokeRequest, frozen=True):
    """End your ranks."""


class SmokeEnded(SmokeReply, frozen=True):
    pass


Requests = SmokeWarm | SmokeHost | SmokeMeet | SmokeEnd
Replies = SmokeReady | SmokeUnable | SmokeHosted | SmokeMet | SmokeEnded
