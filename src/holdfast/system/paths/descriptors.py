"""How many sockets this process may open."""

from __future__ import annotations

import resource

KEPT = 64
"""for everything else that the process has open"""


def room_for(sockets: int, *, most: int) -> int:
    """How many things that need so many sockets each may be under way at once; at least one."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return most
    return max(1, min(most, (soft - KEPT) // sockets))
