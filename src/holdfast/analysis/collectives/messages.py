"""Sends and receives that are not over, and whose other side never came.

NCCL records each message with both numbers in its group ('send 0->1', 'recv 1<-0'), counted by
each rank for itself, so two sides have no number in common. But a message that one side is still
in, and of which the other side has none open, is one for which the other side never came.

Where it is known which messages a GPU has come to, only those count, on both sides: a pipeline's
scripts ask for dozens ahead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from holdfast import text
from holdfast.analysis.collectives.groups import Recorders
from holdfast.analysis.scene.scene import Collective, Recorder

_SIDES = re.compile(r"(?P<way>send|recv) (?P<own>\d{1,9})(?:->|<-)(?P<peer>\d{1,9})")


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One side of a message, waiting for the other."""

    rank: int
    peer: int
    way: str
    """'send' or 'recv'"""
    group: str
    sequence: int
    on_gpu: bool
    """its GPU is known to be in it"""
    since: float
    """wall seconds, 0 unknown"""
    timeout: float


def unanswered(recorders: Recorders, told: Mapping[str, tuple[int, ...]]) -> tuple[Message, ...]:
    """`told`: group -> its ranks in the order of their numbers there."""
    pending = {rank: _open(rank, recorder, told) for rank, recorder in recorders.items()}
    meant = {
        (m.group, m.peer, m.rank, "recv" if m.way == "send" else "send")
        for open_ones in pending.values()
        for m in open_ones
    }
    return tuple(
        message
        for rank in sorted(pending)
        for message in pending[rank]
        if (message.group, rank, message.peer, message.way) not in meant
    )


def _open(
    rank: int, recorder: Recorder, told: Mapping[str, tuple[int, ...]]
) -> tuple[Message, ...]:
    """The first open one to and from each peer."""
    over: dict[str, int] = {}
    for c in recorder.messages:
        if c.finished:
            over[c.group] = max(c.sequence, over.get(c.group, 0))
    found: dict[tuple[str, int, str], Message] = {}
    for c in recorder.messages:
        message = _message(rank, c, told.get(c.group, ()))
        if c.started is False or c.finished or not message:
            continue
        if c.sequence > over.get(c.group, -1):
            found.setdefault((c.group, message.peer, message.way), message)
    return tuple(found.values())


def title(recorder: Recorder, c: Collective, rank: int) -> str:
    """'recv from rank 2', where its members are known; else as torch calls it."""
    message = _message(rank, c, recorder.members.get(c.group, ()))
    return words([message]) if message else c.op


def words(batch: Sequence[Message]) -> str:
    """'recv from rank 2', 'send to and recv from rank 2', 'messages with ranks 1,3'."""
    peers = {message.peer for message in batch}
    if len(peers) > 1:
        return f"messages with {text.ranks(peers)}"
    ways = dict.fromkeys(message.way for message in batch)
    said = " and ".join(f"{way} {'to' if way == 'send' else 'from'}" for way in ways)
    return f"{said} rank {peers.pop()}"


def _message(rank: int, c: Collective, members: tuple[int, ...]) -> Message | None:
    sides = _SIDES.match(c.op)
    if not sides:
        return None
    number = int(sides["peer"])
    peer = members[number] if number < len(members) else number
    return Message(
        rank=rank,
        peer=peer,
        way=sides["way"],
        group=c.group,
        sequence=c.sequence,
        on_gpu=c.started is True,
        since=c.created,
        timeout=c.timeout,
    )
