"""When a save is due: decided once, by rank 0, and announced for a later step. Pure.

Ranks reach a step at different moments, and their clocks and signals differ: if each decided for
itself, some would save at step 100 and some at 101, and a sharded save would never end. So there
are *points*, steps at which all ranks look for rank 0's word, about half a second apart:

    at point i      rank 0 publishes word i+1: what happens at point i+1, and where i+2 lies
    at point i+1    every rank reads word i+1, which has been there since a point ago

so nobody waits for it in practice, and whoever is late obeys the same step all the same.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.errors import ConfigError
from holdfast.rank.durations import Duration, in_seconds

Wish = Literal["", "save", "stop"]

APART = 0.5
"""seconds of training between two points: what a wish to save, or a signal, may have to wait"""
FIRST_AUTO = 60.0
"""seconds to the first save of `every="auto"`, which tells what a save costs here"""


class Every(msgspec.Struct, frozen=True, kw_only=True):
    """How often to save: one of the three."""

    steps: int = 0
    seconds: float = 0.0
    auto: bool = False


class Word(msgspec.Struct, frozen=True, kw_only=True):
    """What all ranks do at one point."""

    number: int
    step: int
    """the point it is about"""
    save: bool = False
    stop: bool = False
    """save, wait for it to be safe, and end"""
    following: int
    """where the next point lies"""
    token: str = ""
    """names the temporary folder of the save, the same for all"""
    committed: int = -1
    """the newest step known to be safe when this was said"""


def save_interval(every: Duration, every_steps: int | None) -> Every:
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
        return Every(steps=every_steps)
    return Every(auto=True) if is_auto else Every(seconds=in_seconds("every", every))


def first_word(start: int) -> Word:
    """Known to all without being said: the first step after the start is a point."""
    return Word(number=1, step=start + 1, following=start + 2)


class Decider:
    """Rank 0's side. It is told the time; it asks nobody."""

    def __init__(self, every: Every, *, start: int, now: float) -> None:
        self._every = every
        self._last = (start, now)
        self._gap = 1
        self.interval = every.seconds or (FIRST_AUTO if every.auto else 0.0)
        """seconds between saves; `every="auto"` changes it as it learns. 0: by steps"""
        self._saved_at = now
        self._next_step = self._multiple_after(start)

    def decide(self, word: Word, *, now: float, busy: bool, wish: Wish) -> Word:
        """At the point of `word`: what shall happen at the next one, `word.following`.

        While the last save is being written (`busy`) no other is begun: a slow disk delays the
        next save. Only the end of the job does not wait.
        """
        pace = self._learn(word.step, now)
        then = word.following
        arrival = now + pace * (then - word.step)
        due = wish == "save" or self._is_due(then, arrival)
        save = wish == "stop" or (due and not busy)
        if save:
            self._saved_at = arrival
            self._next_step = self._multiple_after(then)
        return Word(
            number=word.number + 1,
            step=then,
            save=save,
            stop=wish == "stop",
            following=self._point_after(then),
        )

    def _is_due(self, step: int, arrival: float) -> bool:
        if self._every.steps:
            return step >= self._next_step
        return arrival >= self._saved_at + self.interval

    def _learn(self, step: int, now: float) -> float:
        """Seconds a step takes; and how many steps lie between two points from now on.

        The gap shrinks at once and grows by doubling: a first step that compiles, or a pause,
        teaches nothing about those that follow.
        """
        before, then = self._last
        self._last = (step, now)
        pace = max(now - then, 0.0) / max(step - before, 1)
        apart = min(APART, self.interval / 10) if self.interval else APART
        fitting = int(apart / pace) if pace > 0 else 2 * self._gap
        self._gap = max(1, min(fitting, 2 * self._gap))
        return pace

    def _point_after(self, step: int) -> int:
        if not self._every.steps:
            return step + self._gap
        # Some points between two saves: at the only one the last save would still be written.
        gap = max(1, min(self._gap, self._every.steps // 4))
        return min(step + gap, self._multiple_after(step))

    def _multiple_after(self, step: int) -> int:
        every = self._every.steps
        return (step // every + 1) * every if every else 0
