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
    """wall seconds, 0 unknown; of messages posted as one, the first"""
    timeout: float

    @property
    def lane(self) -> tuple[str, int, str]:
        return self.group, self.peer, self.way


OpenMessages = Mapping[int, tuple[Message, ...]]
"""rank -> the first open one to and from each peer"""


def open_ones(
    recorders: Recorders, told: Mapping[str, tuple[int, ...]]
) -> dict[int, tuple[Message, ...]]:
    """`told`: group -> its ranks in the order of their numbers there."""
    return {rank: _open(rank, recorder, told) for rank, recorder in recorders.items()}


def counterpart(message: Message, known: OpenMessages) -> Message | None:
    """The other side, if it has come."""
    way = "recv" if message.way == "send" else "send"
    for other in known.get(message.peer, ()):
        if (other.group, other.peer, other.way) == (message.group, message.rank, way):
            return other
    return None


def unanswered(known: OpenMessages) -> tuple[Message, ...]:
    return tuple(m for rank in sorted(known) for m in known[rank] if not counterpart(m, known))


def batches(known: OpenMessages) -> list[list[Message]]:
    """Those that a rank posted as one."""
    found: dict[tuple[int, str, int], list[Message]] = {}
    for message in (m for own in known.values() for m in own):
        found.setdefault((message.rank, message.group, message.sequence), []).append(message)
    return list(found.values())


def _open(
    rank: int, recorder: Recorder, told: Mapping[str, tuple[int, ...]]
) -> tuple[Message, ...]:
    """The first open one to and from each peer."""
    known = [
        (c, message)
        for c in recorder.messages
        if (message := _message(rank, c, told.get(c.group, ())))
    ]
    # To one peer, and from one, messages end in order; a send may be open long after others ended.
    over: dict[tuple[str, int, str], int] = {}
    for c, message in known:
        if c.finished:
            over[message.lane] = max(c.sequence, over.get(message.lane, 0))
    found: dict[tuple[str, int, str], Message] = {}
    since: dict[tuple[str, int], float] = {}
    for c, message in known:
        if c.started is not False and not c.finished and c.sequence > over.get(message.lane, -1):
            batch = since.setdefault((c.group, c.sequence), c.created)
            found.setdefault(message.lane, msgspec.structs.replace(message, since=batch))
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
