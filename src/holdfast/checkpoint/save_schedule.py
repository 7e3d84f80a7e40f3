"""When a save is due: decided once, by rank 0, and announced for a later step. Pure.

Ranks reach a step at different times, and their clocks and signals differ: if each decided for
itself, some would save at step 100 and some at 101, and a sharded save would never end. So there
are *sync points*, steps at which all ranks read rank 0's announcement, about half a second apart:

    at sync point i      rank 0 publishes announcement i+1: what to do at i+1, and where i+2 is
    at sync point i+1    every rank reads announcement i+1, published a sync point ago

so no rank waits for it in practice, and even a rank that is late acts at the same step.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.errors import ConfigError
from holdfast.rank.durations import Duration, in_seconds

RequestKind = Literal["", "save", "stop"]

SYNC_SECONDS = 0.5
"""of training between two sync points: what a requested save, or a signal, may have to wait"""
FIRST_AUTO = 60.0
"""seconds to the first save of `every="auto"`, which tells what a save costs here"""


class SaveInterval(msgspec.Struct, frozen=True, kw_only=True):
    """How often to save: one of the three."""

    steps: int = 0
    seconds: float = 0.0
    auto: bool = False


class Announcement(msgspec.Struct, frozen=True, kw_only=True):
    """What all ranks do at one sync point."""

    number: int
    step: int
    """the sync point it is about"""
    save: bool = False
    stop: bool = False
    """save, wait until it is on disk, and exit"""
    following: int
    """the step of the next sync point"""
    compare: bool = False
    """the ranks compare what they hold: the structure of rank 0's state has changed"""
    token: str = ""
    """names the temporary folder of the save, the same for all"""
    committed: int = -1
    """the newest step known to be on disk when this was announced"""


def save_interval(every: Duration, every_steps: int | None) -> SaveInterval:
    """What `Checkpoint(every=…, every_steps=…)` means: a duration, "auto", or a number of steps."""
    is_auto = isinstance(every, str) and every.strip().lower() == "auto"
    if every_steps is not None:
        if not is_auto:
            raise ConfigError(
                f"every={every!r} and every_steps={every_steps!r} exclude each other",
                hint="give every= for a duration or every_steps= for a number of steps",
            )
        if isinstance(every_steps, bool) or not isinstance(every_steps, int) or every_steps < 1:
            raise ConfigError(
                f"every_steps must be a whole number > 0, got {every_steps!r}",
                hint='for a duration write every="5m"',
            )
        return SaveInterval(steps=every_steps)
    return SaveInterval(auto=True) if is_auto else SaveInterval(seconds=in_seconds("every", every))


def first_announcement(start: int) -> Announcement:
    """Known to all without being announced: the first step after the start is a sync point."""
    return Announcement(number=1, step=start + 1, following=start + 2)


class SaveSchedule:
    """Rank 0's side. It is given the time, and asks for nothing."""

    def __init__(self, every: SaveInterval, *, start: int, now: float) -> None:
        self._every = every
        self._last = (start, now)
        self._gap = 1
        self.interval = every.seconds or (FIRST_AUTO if every.auto else 0.0)
        """seconds between saves; `every="auto"` changes it as it learns. 0: by steps"""
        self._saved_at = now
        self._next_step = self._multiple_after(start)

    def announce_next(
        self, current: Announcement, *, now: float, busy: bool, requested: RequestKind
    ) -> Announcement:
        """At the current sync point: what to do at the next one, `current.following`.

        While the last save is being written (`busy`) no other is started: a slow disk delays the
        next save. Only the end of the job does not wait.
        """
        pace = self._learn(current.step, now)
        then = current.following
        arrival = now + pace * (then - current.step)
        due = requested == "save" or self._is_due(then, arrival)
        save = requested == "stop" or (due and not busy)
        if save:
            self._saved_at = arrival
            self._next_step = self._multiple_after(then)
        return Announcement(
            number=current.number + 1,
            step=then,
            save=save,
            stop=requested == "stop",
            following=self._sync_point_after(then),
        )

    def _is_due(self, step: int, arrival: float) -> bool:
        if self._every.steps:
            return step >= self._next_step
        return arrival >= self._saved_at + self.interval

    def _learn(self, step: int, now: float) -> float:
        """Seconds a step takes; and how many steps are between two sync points from now on.

        The gap shrinks at once and grows by doubling: a first step that compiles, or a pause,
        teaches nothing about those that follow.
        """
        before, then = self._last
        self._last = (step, now)
        pace = max(now - then, 0.0) / max(step - before, 1)
        apart = min(SYNC_SECONDS, self.interval / 10) if self.interval else SYNC_SECONDS
        fitting = int(apart / pace) if pace > 0 else 2 * self._gap
        self._gap = max(1, min(fitting, 2 * self._gap))
        return pace

    def _sync_point_after(self, step: int) -> int:
        if not self._every.steps:
            return step + self._gap
        # Some sync points between two saves: at the only one the last save would still be written.
        gap = max(1, min(self._gap, self._every.steps // 4))
        return min(step + gap, self._multiple_after(step))

    def _multiple_after(self, step: int) -> int:
        every = self._every.steps
        return (step // every + 1) * every if every else 0
