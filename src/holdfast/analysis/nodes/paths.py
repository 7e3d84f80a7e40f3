"""What one node saw of its way to another; every path has a direction."""

from __future__ import annotations

import enum

from holdfast.analysis.machine import Fact


class PortKind(enum.Enum):
    MASTER = "master"
    """the port that the job's store is going to listen on"""
    EPHEMERAL = "ephemeral"
    """a port that the kernel chose, as NCCL and Gloo let it do"""


class Target(Fact, frozen=True):
    """Where a node listens for the probes of the others."""

    node: str
    interface: str
    """the target's own interface that has this address"""
    address: str
    port: int
    kind: PortKind


class Outcome(enum.Enum):
    """What a TCP connect to a live listener brought."""

    OK = "ok"
    DROPPED = "dropped"
    """nothing came back: a firewall that drops, or a host that is gone"""
    REJECTED = "rejected"
    """an answer that forbids it (EHOSTUNREACH, EACCES…): a firewall's reject, or no ARP reply"""
    REFUSED = "refused"
    """a reset although the listener is alive: a firewall that answers for it, or another host"""
    NO_ROUTE = "no route"
    """this node has no way there (ENETUNREACH)"""
    STRANGER = "stranger"
    """connected, but what answered is not the target's listener: a duplicate address, NAT"""
    FAILED = "failed"
    """anything else; `error` says what"""


class Reached(Fact, frozen=True):
    """One connect from a node to a target."""

    source: str
    target: Target
    outcome: Outcome
    error: str
    """'' or the errno's name and words"""
    seconds: float
    local_address: str
    """the source address the kernel chose; '' where it did not get that far"""


class RouteTo(Fact, frozen=True):
    """The kernel's own answer to 'which way to this address?'; nothing is sent."""

    source: str
    target: Target
    interface: str
    local_address: str
    gateway: str
    """'' when the target is a neighbour"""
    mtu: int
    """the MTU that this node believes in for that path"""
    error: str
    """'' or why there is no way"""


class SizeProbe(Fact, frozen=True):
    bytes: int
    """of the whole IP packet (UDP with DF), or of the message (TCP)"""
    arrived: bool
    error: str = ""
    """EMSGSIZE and the like: the packet never left"""


class PathSizes(Fact, frozen=True):
    """Which sizes get from a node to a target, one way; the other way is the target's to say."""

    source: str
    target: Target
    interface: str
    """the source's interface by which it leaves"""
    mtu: int
    """of that interface"""
    datagrams: tuple[SizeProbe, ...]
    """by size; with 'do not fragment'"""
    messages: tuple[SizeProbe, ...]
    """a ladder over one TCP connection each; by size"""


class PathLoss(Fact, frozen=True):
    """Small datagrams, each acknowledged; what was lost on the way there or back."""

    source: str
    target: Target
    sent: int
    arrived: int
    """counted by the target"""
    answered: int
    """acknowledgements that came back"""
    median_seconds: float | None
    """of a round trip; None when nothing came back"""
