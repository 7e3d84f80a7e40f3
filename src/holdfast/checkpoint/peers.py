"""Which ranks of the job are gone: without any one of them there is no save to wait for.

A rank sees those that its launcher started beside it; what it sees it posts, for ranks elsewhere.
"""

from __future__ import annotations

import contextlib
import os

import msgspec

from holdfast.checkpoint.message_board import MessageBoard
from holdfast.errors import EnvironmentFailure
from holdfast.system import proc

RANK, LOCAL_RANK = "RANK", "LOCAL_RANK"


class _GoneRank(msgspec.Struct, frozen=True):
    rank: str


class Peers:
    """The ranks on this machine, as they are when this is made: after the process group."""

    def __init__(self, board: MessageBoard) -> None:
        self._board = board
        me = proc.row_of(os.getpid())
        self._beside = [
            (row, found[RANK])
            for row in proc.process_table().values()
            if me and row.parent == me.parent and row.pid != me.pid
            if RANK in (found := proc.environment(row.pid, only_with=(LOCAL_RANK,)))
        ] if board.world_size > 1 and LOCAL_RANK in os.environ else []  # fmt: skip

    def missing(self) -> str:
        """'rank 3 has exited', or '' if none is known to have."""
        for row, rank in self._beside:
            now = proc.row_of(row.pid)
            if now is None or now.started != row.started or now.state in ("Z", "X"):
                with contextlib.suppress(EnvironmentFailure):
                    self._board.post("gone", _GoneRank(rank))
                return f"rank {rank} has exited"
        with contextlib.suppress(EnvironmentFailure):
            if self._board.is_posted("gone"):
                return f"rank {self._board.receive('gone', _GoneRank).rank} has exited"
        return ""
