"""AMD GPUs, by what the kernel shows of them."""

from __future__ import annotations

from holdfast.analysis.machine import Plan, RocmFacts, Unread


def read_rocm(_plan: Plan) -> RocmFacts | Unread:
    return Unread(why="not read yet")
