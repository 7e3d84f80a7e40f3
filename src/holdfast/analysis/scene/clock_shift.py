"""Times of a rank by another machine's clocks. Pure: how far two clocks are apart is measured
elsewhere.

Monotonic clocks of two machines have nothing in common, and wall clocks may be seconds apart. So
every time is changed on the machine that saw it, before it is sent: the coordinator knows one
clock. A time of 0 means that there is none.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import msgspec

from holdfast.analysis.scene.cpu import CpuLook
from holdfast.analysis.scene.scene import (
    Beat,
    Claim,
    Collective,
    Death,
    ExitCall,
    LastWords,
    RankView,
    Recorder,
)

MONOTONIC: dict[type[msgspec.Struct], tuple[str, ...]] = {
    RankView: ("alive_at", "state_since"),
    Beat: ("step_at", "beat_at", "limit_until", "group_left_at", "leaving_at"),
    Claim: ("at",),
    ExitCall: ("at",),
    Death: ("at",),
    LastWords: ("at",),
    CpuLook: ("at",),
}
WALL: dict[type[msgspec.Struct], tuple[str, ...]] = {
    Claim: ("wall",),
    Collective: ("created", "ended"),
}
PARTS: dict[type[msgspec.Struct], tuple[str, ...]] = {
    RankView: ("beat", "death", "words", "recorder", "looks"),
    Beat: ("claim", "former_claim", "exit_call"),
    Recorder: ("collectives", "messages"),
}
"""fields that hold more of them"""

S = TypeVar("S", bound=msgspec.Struct)


class ClockShift(NamedTuple):
    """What to add to a machine's own times, in seconds, for those of the other machine."""

    monotonic: float
    wall: float

    def moment(self, at: float) -> float:
        return at + self.monotonic if at else 0.0

    def wall_moment(self, at: float) -> float:
        return at + self.wall if at else 0.0


def moved(view: S, shift: ClockShift) -> S:
    """The same rank, or part of one, with all its times by the other clocks."""
    kind = type(view)
    changes: dict[str, Any] = {
        **{name: shift.moment(getattr(view, name)) for name in MONOTONIC.get(kind, ())},
        **{name: shift.wall_moment(getattr(view, name)) for name in WALL.get(kind, ())},
    }
    for name in PARTS.get(kind, ()):
        part = getattr(view, name)
        if isinstance(part, tuple):
            changes[name] = tuple(moved(one, shift) for one in part)
        elif part is not None:
            changes[name] = moved(part, shift)
    return msgspec.structs.replace(view, **changes) if changes else view
