"""No save is announced while a rank still takes the memory for its copy: the save waits, not the
training.

    memory/wanted   how many ranks have begun to take much memory, each after its second sync point
    memory/taken    how many of those have it

A small state has its memory at once, and no rank counts.
"""

from __future__ import annotations

from holdfast.checkpoint.message_board import MessageBoard

LARGE = 64 << 20
"""bytes: less is taken in less time than a sync point is worth"""
_COUNTED = 4
"""number of the first sync point at which all ranks have said whether they take any"""


class MemoryGate:
    """One per rank; rank 0 asks whether it is open."""

    def __init__(self, board: MessageBoard) -> None:
        self._board = board
        self._taking = self._open = False

    def note(self, *, taking: bool) -> None:
        """At each sync point from the second on."""
        if taking != self._taking:
            self._taking = taking
            self._board.count_later("memory/wanted" if taking else "memory/taken")

    def is_closed(self, number: int, *, large: bool) -> bool:
        """On rank 0, at the sync point of that number; `large`: so is its own state."""
        if self._open:
            return False
        if number == 1:  # no rank has begun; what is announced now would be a save at once
            return large
        taken, wanted = (self._board.count(f"memory/{name}", 0) for name in ("taken", "wanted"))
        self._open = number >= _COUNTED and taken >= wanted
        return taken < wanted
