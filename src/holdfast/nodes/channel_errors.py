"""What can go wrong between two nodes, each as a sentence a user can read.

ChannelError
├── ChannelClosed    the peer is gone
├── ChannelTimeout   the peer is silent, or does not read
├── BadMessage       what came is no message that we understand; the connection was ended
├── NotHoldfast      something else answers there
├── WrongVersion     the peer runs another holdfast
├── WrongToken       the peer does not know the token of this run
├── Refused          the coordinator does not admit this node, and says why
├── CannotListen     the kernel does not give us the address or the port
└── CouldNotJoin     no coordinator was found in time
"""

# ruff: noqa: N818 - their names are what happened
from __future__ import annotations

from holdfast.errors import EnvironmentFailure


class ChannelError(EnvironmentFailure):
    """Two nodes could not talk; `sentence` names the peer and what was seen."""


class ChannelClosed(ChannelError):
    def __init__(self, peer: str, why: str) -> None:
        super().__init__(f"{peer} {why}")
        self.peer = peer
        self.why = why


class ChannelTimeout(ChannelError):
    """No answer in time; a receive may be tried again, a send has ended the connection."""


class BadMessage(ChannelError):
    """The connection was ended; nothing else changed."""

    def __init__(self, peer: str, why: str) -> None:
        super().__init__(f"{peer} {why}")
        self.peer = peer
        self.why = why


class NotHoldfast(ChannelError):
    """Something answers there, and it is not holdfast; `said` is what it sent, made printable."""

    def __init__(self, peer: str, why: str, *, said: str = "", hint: str = "") -> None:
        quoted = f"; it sent: {said}" if said else ""
        super().__init__(f"{peer} {why}{quoted}", hint=hint)
        self.said = said


class WrongVersion(ChannelError):
    """Two versions of holdfast that cannot talk to each other."""

    def __init__(self, peer: str, *, theirs: int, ours: int, their_release: str) -> None:
        super().__init__(
            f"{peer} runs holdfast {their_release or 'of another version'} (protocol {theirs}), "
            f"this node speaks protocol {ours}",
            hint="install the same version of holdfast on every node",
        )
        self.theirs = theirs
        self.ours = ours


class WrongToken(ChannelError):
    """The peer could not prove that it knows the token of this run."""


class Refused(ChannelError):
    """The coordinator knows us, and does not admit us; `why` is in its own words. On the
    coordinator (`by_us`) it is the peer that was not admitted."""

    def __init__(self, peer: str, why: str, *, by_us: bool = False) -> None:
        verb = "was refused" if by_us else "refused this node"
        super().__init__(f"{peer} {verb}: {why}")
        self.why = why


class CannotListen(ChannelError):
    """`code` is the errno: EADDRINUSE and EADDRNOTAVAIL mean different things to the caller."""

    def __init__(self, address: str, port: int, problem: OSError) -> None:
        super().__init__(f"cannot listen at {endpoint(address, port)}: {problem.strerror}")
        self.code = problem.errno


class CouldNotJoin(ChannelError):
    """No coordinator in time; `last` is what the last attempt saw."""

    def __init__(self, where: str, *, tries: int, seconds: float, last: str) -> None:
        times = "once" if tries == 1 else f"{tries} times"
        super().__init__(
            f"could not join the coordinator at {where} within {seconds:g} s "
            f"(tried {times}; last: {last})"
        )
        self.last = last


def endpoint(address: str, port: int) -> str:
    """'10.0.0.7:29500', '[fd00::7]:29500'."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
