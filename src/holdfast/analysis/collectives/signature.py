"""What a collective is, and when two of them fit together.

Only operations that must be alike are compared, by what crosses the wire: [2, 3] and [6] are the
same. A scatter, a gather or an all_to_all may differ legitimately.
"""

from __future__ import annotations

import functools
import math
import re

import msgspec

from holdfast.analysis.scene.scene import Collective, Recorder

ALIKE = frozenset(
    {"all_reduce", "broadcast", "reduce", "barrier", "all_reduce_barrier", "reduce_scatter"}
    | {"_all_gather_base", "_allgather_base", "all_gather_into_tensor", "_reduce_scatter_base"}
    | {"reduce_scatter_tensor"}
)
"""operations whose size must be the same on every rank"""

ONE_SIDED = frozenset({"broadcast", "reduce", "scatter", "gather", "send", "recv", "coalesced"})
"""operations that one member may finish while another has not begun: there counts may differ"""

Kind = tuple[str, str]
"""what a collective is: its operation, and what it moves where that must agree"""


class Mismatch(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks that met at one position of a group with different collectives."""

    group: str
    sequence: int
    odd: tuple[int, ...]
    """the minority; all ranks of the group when there is no majority"""
    right: tuple[int, ...]
    undecided: bool
    kinds: dict[int, str]
    """rank -> 'all_reduce [4] Float'"""
    skipped: bool
    """the odd ranks are where the others will be, or usually are, one collective later"""
    ops_differ: bool


def kind(collective: Collective) -> Kind:
    """Equal for collectives that fit together."""
    return collective.op, _amount(collective.shape) if collective.op in ALIKE else ""


@functools.lru_cache(maxsize=10_000)
def _amount(shape: str) -> str:
    """'[2, 3] Float' and '[6] Float' move the same."""
    lists, _, types = shape.rpartition("]")
    sizes = re.findall(r"\[([\d, ]*)\]", lists + "]")
    total = sum(math.prod(int(n) for n in re.findall(r"\d+", dims)) for dims in sizes)
    return f"{total} {types.strip()}" if sizes else shape


def size(side: Kind) -> float:
    number = side[1].partition(" ")[0]
    return float(number) if number.isdigit() else 0.0


def entry(recorder: Recorder, group: str, sequence: int) -> Collective | None:
    return next(
        (c for c in recorder.collectives if c.group == group and c.sequence == sequence), None
    )


def describe(collective: Collective) -> str:
    return f"{collective.op} {collective.shape}".strip()
