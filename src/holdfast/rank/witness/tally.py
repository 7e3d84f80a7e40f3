"""What went into a step and came out of it, and the line that says so."""

from __future__ import annotations

import math
import sys
from typing import Any, NamedTuple

from holdfast.rank.witness import weights
from holdfast.rank.witness.device_numbers import as_float


class StepTally:
    """What went into a step, or a part of one; on the devices where it was seen."""

    def __init__(self) -> None:
        self.losses: list[Any] = []
        self.data: list[Any] = []
        self.samples = 0
        self.unreadable = False
        self.ended = 0.0

    def add(self, later: StepTally, ended: float) -> None:
        self.losses += later.losses
        self.data += later.data
        self.samples += later.samples
        self.unreadable |= later.unreadable
        self.ended = ended


class HeldWeights(NamedTuple):
    """Numbers on the devices that hold the weights."""

    sums: list[Any]
    values: list[Any]

    @property
    def all(self) -> list[Any]:
        return [*self.sums, *self.values]

    def fields(self, read: list[int]) -> dict[str, Any]:
        """Of a record; `read` is what `all` holds."""
        count = len(self.sums)
        values = [_finite(as_float(one)) for one in read[count:]]
        return {"weights": weights.digest(read[:count]), "values": values}


def step_fields(tally: StepTally, held: HeldWeights, read: list[int]) -> dict[str, Any]:
    """`read`: of the losses, of the data and of the weights."""
    losses, rest = read[: len(tally.losses)], read[len(tally.losses) :]
    data, rest = rest[: len(tally.data)], rest[len(tally.data) :]
    return {
        "loss": _finite(sum(map(as_float, losses))) if losses else None,
        "data": sum(data) % 2**64 if data and not tally.unreadable else None,
        "samples": tally.samples,
        **held.fields(rest),
    }


def _finite(number: float) -> float:
    """JSON has no other numbers; such a loss differs from every other one."""
    return number if math.isfinite(number) else sys.float_info.max
