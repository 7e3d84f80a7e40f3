"""Is a node heard, late or lost? Not heard is not silent: of one that is late, nothing is known."""

from __future__ import annotations

import dataclasses
import enum

LATE_LOOK = 1.0
"""seconds between two looks after which our own loop was late: the machine slept or starved, and
what others sent in that time has not been read yet"""


class Hearing(enum.Enum):
    HEARD = "heard"
    LATE = "late"
    LOST = "lost"


@dataclasses.dataclass(frozen=True)
class Lease:
    """A node must be heard within `late` seconds, and is given up after `lost`."""

    late: float
    lost: float

    def __post_init__(self) -> None:
        if not 0 < self.late < self.lost:
            raise ValueError(f"late and lost must be 0 < late < lost, got {self.late}, {self.lost}")

    def hearing(self, silent: float) -> Hearing:
        if silent >= self.lost:
            return Hearing.LOST
        return Hearing.LATE if silent >= self.late else Hearing.HEARD
