"""Takes all that a limit allows, and never what other processes of the machine need.

The drill sets the limit from outside, for this job alone. Where none is found, all of these stop
early: the drill then sees that its fault did not come.
"""

from __future__ import annotations

import contextlib
import os
import resource
from typing import Any

CHUNK = 4 << 20
WITHOUT_LIMIT = 1 << 30
"""bytes"""
BEYOND_LIMIT = 1 << 30
"""bytes: a limit leaves room for a while, by what it can swap or drop"""
MOST_FILES = 1 << 16
GPU_ROOM = 256 << 20
"""bytes that this process may still allocate on its GPU"""

_taken: list[Any] = []
"""kept until the process ends"""


def allocate() -> None:
    most = bytes_to_take(memory_limit(), memory_available())
    for _ in range(0, most, CHUNK):
        chunk = bytearray(CHUNK)
        chunk[:: resource.getpagesize()] = b"\1" * len(range(0, CHUNK, resource.getpagesize()))
        _taken.append(chunk)


def bytes_to_take(limit: int | None, available: int) -> int:
    """Enough to pass the limit, and never more than half of what the machine has left."""
    wanted = WITHOUT_LIMIT if limit is None else limit + BEYOND_LIMIT
    return min(wanted, available // 2)


def memory_limit(root: str = "/sys/fs/cgroup", own: str = "/proc/self/cgroup") -> int | None:
    """The smallest of this process's cgroup and those above it; None: there is none."""
    found = []
    for place in _cgroups(root, own):
        for name in ("memory.max", "memory.limit_in_bytes"):
            with contextlib.suppress(OSError, ValueError), open(f"{place}/{name}") as file:
                found.append(int(file.read()))  # 'max' is no number
    limit = min(found, default=0)
    return limit if 0 < limit < 1 << 60 else None


def _cgroups(root: str, own: str) -> list[str]:
    with contextlib.suppress(OSError), open(own) as file:
        lines = [line.rstrip("\n").split(":", 2) for line in file]
        # 0::/path is version 2, N:memory:/path version 1.
        told = [
            (f"{root}/memory" if controllers else root, path)
            for _, controllers, path in lines
            if not controllers or "memory" in controllers.split(",")
        ]
        return [
            base + "/".join(["", *parts[:depth]])
            for base, path in told
            for parts in [path.strip("/").split("/")]
            for depth in range(len(parts) + 1)
        ]
    return []


def memory_available() -> int:
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable"))


def open_files() -> None:
    """Raises what the script's next open() would: many scripts open none for a long time."""
    while len(_taken) < MOST_FILES:
        _taken.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))


def allocate_on_gpu(torch: Any) -> None:
    """Up to a share that torch grants this process, so that other processes on the GPU keep
    theirs: the error is the same."""
    device = torch.cuda.current_device()
    total = torch.cuda.get_device_properties(device).total_memory
    granted = torch.cuda.memory_reserved(device) + GPU_ROOM
    torch.cuda.set_per_process_memory_fraction(min(1.0, granted / total), device)
    while True:
        _taken.append(torch.empty(CHUNK << 2, dtype=torch.uint8, device=device))
