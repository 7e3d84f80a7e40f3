"""The RDMA ports of this node while a job runs: read when it stalls, compared with its start."""

from __future__ import annotations

from holdfast.analysis.machine import RdmaPort, Unread
from holdfast.analysis.scene.rdma import PortChange, changes
from holdfast.system import rdma


class RdmaWatch:
    """A card that hangs is asked once in an attempt."""

    def __init__(self, root: str = "/") -> None:
        self._root = root
        self._before: tuple[RdmaPort, ...] | Unread = ()

    def begin(self) -> None:
        """The ranks of an attempt were started."""
        self._before = rdma.look(self._root)

    def look(self) -> tuple[PortChange, ...] | Unread | None:
        """None on a machine without RDMA."""
        if isinstance(self._before, Unread):
            return self._before
        if not self._before:
            return None
        now = rdma.look(self._root)
        if isinstance(now, Unread):
            self._before = now
            return now
        return changes(self._before, now)
