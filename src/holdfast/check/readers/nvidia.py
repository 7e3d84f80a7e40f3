"""NVIDIA's driver and every GPU it shows, by NVML."""

from __future__ import annotations

from holdfast.analysis.machine import NvidiaFacts, Plan, Unread


def read_nvidia(_plan: Plan) -> NvidiaFacts | Unread:
    return Unread(why="not read yet")
