"""What the two ends of a link say beside the messages of the run: they number and acknowledge
those, so that none is lost or doubled when a connection breaks and the next one goes on.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from holdfast.nodes.clock_exchange import ClockReading
from holdfast.run.nodes.link.report_codec import ReportUpdate
from holdfast.run.nodes.messages import Admitted, NodeCard, ToCoordinator, ToLauncher

Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]
StreamId = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]


class LinkMessage(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The base; the tag says which."""


class Hello(LinkMessage, frozen=True):
    """A launcher's first message."""

    card: NodeCard
    wall: float = 0.0
    """its wall clock when it was sent"""


class Resume(LinkMessage, frozen=True):
    """A launcher's first message on a new connection, after one that broke."""

    card: NodeCard
    stream: StreamId
    received: Count


class Welcome(LinkMessage, frozen=True):
    admitted: Admitted
    stream: StreamId
    """random; names what is said between the two over all their connections"""
    received: Count = 0


class Said(LinkMessage, frozen=True):
    number: Count
    message: ToCoordinator | ReportUpdate


class Ordered(LinkMessage, frozen=True):
    number: Count
    message: ToLauncher


class Pulse(LinkMessage, frozen=True):
    """A sign of life, both ways."""

    number: Count
    """rising; those of datagrams and questions are in the same row"""
    confirmed: Count
    """the highest of the other side's that was heard"""
    received: Count
    """the last numbered message that has arrived"""
    wall: int = 0
    """a coordinator's wall clock minus its CLOCK_BOOTTIME, ns: a jump says that it was set"""


class ClockQuestion(LinkMessage, frozen=True):
    number: Count


class ClockAnswer(LinkMessage, frozen=True):
    number: Count
    wall: ClockReading
    monotonic: ClockReading
    """CLOCK_MONOTONIC in place of a wall clock"""


class LinkEnds(LinkMessage, frozen=True):
    """From a coordinator: it is done, or this launcher's place is gone."""

    why: str
    done: bool


class ComeLater(LinkMessage, frozen=True):
    """From a coordinator, in place of a welcome."""

    why: str


FromLauncher = Hello | Resume | Said | Pulse | ClockQuestion
FromCoordinator = Welcome | Ordered | Pulse | ClockAnswer | LinkEnds | ComeLater
