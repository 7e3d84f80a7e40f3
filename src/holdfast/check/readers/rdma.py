"""RDMA cards as a whole: who drives them, and whether this user can open them."""

from __future__ import annotations

from holdfast.analysis.machine import Plan, RdmaCard, Unread


def read_rdma_cards(_plan: Plan) -> tuple[RdmaCard, ...] | Unread:
    return Unread(why="not read yet")
