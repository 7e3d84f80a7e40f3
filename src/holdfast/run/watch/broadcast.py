"""The same sentence on every node: what goes to this node's journal and screen goes to all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from holdfast.analysis.job.journal_records import JournalRecord
from holdfast.run.watch.peers import NodePeers

STATUS_EVERY = 1.0
"""seconds between two status lines sent to other nodes"""


class JournalLike(Protocol):
    def write(self, record: JournalRecord) -> None: ...


class ScreenLike(Protocol):
    def say(self, lines: str | Sequence[str]) -> None: ...


class BroadcastJournal:
    def __init__(self, own: JournalLike, peers: NodePeers) -> None:
        self._own, self._peers = own, peers

    def write(self, record: JournalRecord) -> None:
        self._own.write(record)
        self._peers.record(record)


class BroadcastScreen:
    def __init__(self, own: ScreenLike, peers: NodePeers) -> None:
        self._own, self._peers = own, peers
        self._status = ""
        self._status_at = 0.0

    def say(self, lines: str | Sequence[str]) -> None:
        self._own.say(lines)
        self._peers.say([lines] if isinstance(lines, str) else lines)

    def status(self, line: str, now: float) -> None:
        """To the others only: our own screen is asked for it at every look."""
        if line != self._status and now >= self._status_at + STATUS_EVERY:
            self._status, self._status_at = line, now
            self._peers.say([line], status=True)
