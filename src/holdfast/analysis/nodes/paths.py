"""What one node saw of its way to another; every path has a direction."""

from __future__ import annotations

import enum

from holdfast.analysis.machine import Fact


class PortKind(enum.Enum):
    MASTER = "master"
    """the port that the job's store is going to listen on"""
    EPHEMERAL = "ephemeral"
    """a port that the kernel chose, as NCCL and Gloo let it do; UDP is answered there too"""


class Target(Fact, frozen=True):
    """Where a node listens for the probes of the others."""

    node: str
    interface: str
    """the target's own interface that has this address"""
    address: str
    port: int
    kind: PortKind


class NotListening(Fact, frozen=True):
    """A listener that a node could not open, so that nothing is known of the ways to it."""

    node: str
    interface: str
    address: str
    port: int
    """0 for one that the kernel was to choose"""
    kind: PortKind
    why: str
    """the errno's name and words"""


class Listening(Fact, frozen=True):
    """Where a node listens for the probes of the others, and where it could not."""

    targets: tuple[Target, ...]
    left_out: tuple[NotListening, ...]


class Outcome(enum.Enum):
    """What a TCP connect to a live listener brought."""

    OK = "ok"
    DROPPED = "dropped"
    """nothing came back: a firewall that drops, or a host that is gone"""
    REJECTED = "rejected"
    """an ICMP answer that forbids it (EHOSTUNREACH, EACCES…): a firewall's reject, or a router
    that cannot deliver; `error` says who answered what"""
    REFUSED = "refused"
    """a reset or 'port unreachable' although the listener is alive: a firewall that answers for
    it, or another host at this address"""
    NO_ROUTE = "no route"
    """this node's own routing table has no way there: nothing was sent"""
    NO_NEIGHBOUR = "no neighbour"
    """the next hop does not answer ARP or neighbour discovery: the host is down, its link is cut,
    or it is not in this subnet after all"""
    OWN_ADDRESS = "own address"
    """the source has the target's address too (docker0…): packets for it never leave"""
    STRANGER = "stranger"
    """connected, but what answered is not the target's listener: a duplicate address, NAT, a
    proxy; `error` names the node where it was another one of this check"""
    FAILED = "failed"
    """anything else, also a connection on which no answer came; `error` says what"""


class Reached(Fact, frozen=True):
    """One connect from a node to a target."""

    source: str
    target: Target
    outcome: Outcome
    error: str
    """'' or the errno's name and words, and who sent the ICMP message where one came"""
    seconds: float
    """until connected or failed"""
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
    own_address: bool = False
    """the source has this address itself"""


class SizeProbe(Fact, frozen=True):
    bytes: int
    """of the whole IP packet (UDP with DF), or of the message (TCP)"""
    arrived: bool
    error: str = ""
    """EMSGSIZE: it never left, or a router said that it is too big (`told_mtu`); ECONNREFUSED,
    EHOSTUNREACH…: an ICMP answer. '' when it arrived, or was lost in silence"""
    tries: int = 1
    """a datagram is sent again until chance can no longer explain that it is lost; a message that
    stalls is tried again over another connection"""
    acknowledged: int | None = None
    """TCP: bytes the other kernel acknowledged by the deadline, on the best connection. A black
    hole stops at next to nothing; so may heavy loss, hence where the datagrams arrive it is no
    black hole. None when it was not to be learned"""
    retransmitted: int = 0
    """TCP: segments sent again"""


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
    told_mtu: int | None = None
    """a router on the way said (ICMP 'too big') that packets may have this many bytes: TCP heeds
    it, so this is no black hole; None when none said so"""
    told_by: str = ""
    """that router's address"""


class PathLoss(Fact, frozen=True):
    """Small datagrams, each acknowledged; what was lost on the way there or back."""

    source: str
    target: Target
    sent: int
    """of a path that lost some of the first few, many more are sent"""
    arrived: int | None
    """counted by the target, with what its own full queue dropped: that is no fault of the path;
    None when it could not be asked: not one answer came back"""
    answered: int
    """acknowledgements that came back"""
    median_seconds: float | None
    """of a round trip; None when nothing came back"""
    fastest_seconds: float | None = None
    """the machines' own load adds least to this one"""
    error: str = ""
    """'' or what the kernel said: ECONNREFUSED (UDP is rejected), EPERM (dropped right here)…"""
