"""A job that does not call resume(): do its ranks save into one folder? Asked in the first steps.

resume() asks it before it looks for a checkpoint (choose_together.py). Without it a disk of its own
in every machine would be noticed at the first save, after two minutes, and training would go on
without any.
"""

from __future__ import annotations

import contextlib
import socket

import msgspec

from holdfast.checkpoint import choose_together
from holdfast.checkpoint.answering_store import StoreTroubleError
from holdfast.checkpoint.message_board import MessageBoard

_NAME = "folder"


class FolderOfJob(msgspec.Struct, frozen=True, kw_only=True):
    """Rank 0's."""

    host: str
    token: str
    """in the lock that it has written there"""


def post(board: MessageBoard, token: str) -> None:
    """Rank 0, once the folder is its own."""
    if board.world_size > 1:
        with contextlib.suppress(StoreTroubleError):
            board.post(_NAME, FolderOfJob(host=socket.gethostname(), token=token))


def refuse_own_disk(board: MessageBoard, folder: str) -> None:
    """Any other rank, after rank 0's post. Raises FolderNotShared where it is another folder."""
    with contextlib.suppress(StoreTroubleError):
        if not board.is_posted(_NAME):
            return
        first = board.receive(_NAME, FolderOfJob)
        if not choose_together.sees_token(folder, first.token):
            raise choose_together.not_shared(
                f"rank {board.rank} on {socket.gethostname()}", f"rank 0 on {first.host}", folder
            )
