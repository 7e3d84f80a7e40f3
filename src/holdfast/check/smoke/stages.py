"""The nouns of the smoke test: its stages, what ranks report, and the sums they must get."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

STAGES = ("start", "store", "gloo", "nccl")
"""in this order, after 'loopback', which needs no ranks: each relies on the one before"""

LADDER = (1 << 10, 16 << 10, 256 << 10, 4 << 20, 64 << 20)
"""bytes of the all_reduce, from what fits one packet to what fills a gradient bucket"""

TOP_RUNG = 512 << 20
"""bytes of one more all_reduce over NCCL: on NVLink 64 MiB take less than it takes to start them"""

TOP_RUNG_BELOW = 0.05
"""seconds that the rung before may take: where it took longer, the speed is known already"""

PAIR_BYTES = 128 << 20
"""that two ranks exchange while all others wait"""

MOST_PAIRED = 16
"""ranks whose pairs are all tried, one after the other: 120 pairs, some ten seconds"""

PAIRING_BELOW = 30.0
"""seconds that all pairs may take, by the speed of the sums: sockets among 16 ranks take minutes"""

REPEATS = 3
"""timed calls for each rung, after one that is not timed (the first one connects)"""

PATIENCE = 15
"""seconds torch itself may wait inside a stage: a failure must show quickly"""

NCCL_PATIENCE = 45
"""the same for NCCL, whose first call brings up the driver on every GPU"""

PERIOD = 251
"""a prime, so that a chunk put in the wrong place does not match by accident"""

MAX_WORLD = 256
"""the largest sum, 251 · 256·257/2 + 256·4, still has an exact float32 (below 2**24)"""

SHARED = " (shared)"
"""marks a GPU that ranks share on purpose: HOLDFAST_SMOKE_SHARE_GPU=1"""

WORDS_KEPT = 1500
"""characters of an error's text; torch appends pages of C++ frames"""


class Record(NamedTuple):
    """One thing that happened to one rank. The rank reports it, or the conductor saw it.

    By the rank:      'done' (a stage), 'listening' (rank 0's store), 'rung', 'pair', 'skipped',
                      'error'
    By the conductor: 'started', 'exit' (by itself), 'late' (told to begin, and not done when we
                      stopped waiting; the text is the kernel's letter for its state),
                      'nccl' (a line that NCCL printed about its transports or diagnostics), and
                      'closed' (a stage is over for all; its rank is -1)
    """

    rank: int
    kind: str
    stage: str
    pid: int = 0
    device: str = ""
    master: str = ""
    nccl: str = ""
    """NCCL's version, '' without NCCL"""
    gpu: str = ""
    """UUID of its GPU; '' without one"""
    peer: int = -1
    """the other rank of a pair"""
    size: int = 0
    seconds: float = 0.0
    correct: bool = True
    text: str = ""
    code: int = 0
    """exit code, as subprocess gives it: negative for a signal"""


def deadline(stage: str, seconds: float) -> float:
    """How long a stage may go without progress when the user allows `seconds`.

    Importing torch and waking GPUs may be slow; what TCP does on one machine may not.
    """
    return min(seconds, 2.0 * PATIENCE) if stage in ("store", "gloo") else seconds


def encode(record: Record) -> bytes:
    """One line of JSON."""
    return json.dumps(record._asdict()).encode() + b"\n"


def decode(line: bytes) -> Record | None:
    """The record of a line; None for anything else (a foreign program wrote to our pipe)."""
    try:
        fields: dict[str, Any] = json.loads(line)
        record = Record(**fields)
    except (ValueError, TypeError, RecursionError):
        return None
    # bool is an int to Python, not to us: True as a rank or a size would be nonsense.
    kinds = {name: type(value) for name, value in _EXAMPLE._asdict().items()}
    good = all(type(getattr(record, name)) is kind for name, kind in kinds.items())
    return record if good else None


_EXAMPLE = Record(rank=0, kind="", stage="")


def contribution(rank: int, position: int, round_number: int) -> int:
    """What a rank puts at a position: differs by rank, by position and by round.

    So a rank left out or counted twice, a misplaced chunk and the result of an earlier
    round all give another sum.
    """
    return (rank + 1) * (position % PERIOD + 1) + round_number


def total(world: int, position: int, round_number: int) -> int:
    """What the all_reduce must give there, exactly."""
    return world * (world + 1) // 2 * (position % PERIOD + 1) + world * round_number
