"""What a small CUDA program meets on each GPU, each in a process of its own."""

from __future__ import annotations

from holdfast.analysis.machine import CudaFacts, Plan, Unread


def read_cuda(_plan: Plan) -> CudaFacts | Unread:
    return Unread(why="not read yet")
