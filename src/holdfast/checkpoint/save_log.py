"""Rank 0's memory of its saves: events for the launcher, a line where one failed.

The other ranks know only their own part, and leave the reporting to rank 0.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable

from holdfast.checkpoint import cadence
from holdfast.checkpoint.messages import SaveAnswer, SaveCommitted, SaveFailure
from holdfast.checkpoint.save_schedule import SaveInterval
from holdfast.rank.events import tell
from holdfast.rank.print_line import say
from holdfast.text import duration

SAID_AT_MOST = 60.0
"""seconds between two lines about the same failure, at the least"""


class SaveLog:
    """What saves cost and how they ended."""

    def __init__(
        self,
        interval: SaveInterval,
        *,
        offer: Callable[[str], None] | None = None,
        any_world: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`any_world`: whether a job with another number of ranks would resume from a save."""
        self._asked, self._offer, self._clock = interval, offer, clock
        self._any_world = any_world
        self._failures: dict[tuple[int, str], float] = {}
        """when each kind was last said, since a save succeeded"""
        self._once: set[str] = set()
        self._began = self._safe_at = clock()
        self.interval = 0.0
        """seconds, for `every="auto"`; 0 before the first save"""

    def note(self, answer: SaveAnswer, *, safe: int | None) -> None:
        """`safe` is the newest step that is on disk."""
        if answer.committed is not None:
            self._committed(answer.committed)
        if answer.failed is not None:
            self._failed(answer.failed, safe)

    def _committed(self, done: SaveCommitted) -> None:
        self._failures.clear()
        self._safe_at = self._clock()
        tell(
            "saved",
            step=done.step,
            path=done.path,
            bytes=done.bytes,
            stall=done.stall,
            seconds=done.seconds,
            made_room=list(done.made_room),
            any_world=self._any_world(),
        )
        if self._offer is not None:
            self._offer(done.path)
        if done.made_room:
            self._print_once(
                "made room",
                f"the disk was full: removed {', '.join(done.made_room)} to save step {done.step}; "
                f"on a disk for fewer checkpoints than keep= asks for, the oldest goes before "
                "each save",
            )
        if done.not_removed:
            self._print_once(done.not_removed, f"an old checkpoint remains: {done.not_removed}")
        if self._asked.auto:
            self._learn(done)

    def _learn(self, done: SaveCommitted) -> None:
        """Restarts so far, by any launcher, are the failures seen; the uptime is that of this
        attempt, so the rate errs on the cautious side."""
        expected = cadence.mtbf(
            uptime=self._clock() - self._began,
            failures=_number("TORCHELASTIC_RESTART_COUNT", 0),
            machines=max(1, _number("WORLD_SIZE", 1) // max(1, _number("LOCAL_WORLD_SIZE", 1))),
        )
        before = self.interval
        self.interval = cadence.auto_interval(stall=done.stall, writing=done.seconds, mtbf=expected)
        if abs(self.interval - before) > 0.1 * before:
            tell("cadence", interval=self.interval, stall=done.stall, mtbf=expected)

    def _failed(self, failed: SaveFailure, safe: int | None) -> None:
        now = self._clock()
        tell(
            "save-failed",
            step=failed.step,
            why=failed.what,
            errno=failed.errno,
            where=failed.where,
            safe=safe,
            unsaved=now - self._safe_at,
            made_room=list(failed.made_room),
        )
        kind = (failed.errno, failed.what if not failed.errno else "")
        if not is_due(now, said=self._failures.get(kind), safe_at=self._safe_at):
            return
        self._failures[kind] = now
        name = errno.errorcode.get(failed.errno, "")
        what = f"{failed.what} ({name})" if name else failed.what
        gone = f"; removed {', '.join(failed.made_room)} for it" if failed.made_room else ""
        say(
            f"step {failed.step} was not saved: {what}: {failed.where}{gone}; "
            f"{last_safe(safe, failed.step, now - self._safe_at)}; training continues, "
            "the next save is tried as planned"
        )

    def _print_once(self, kind: str, sentence: str) -> None:
        if kind not in self._once:
            self._once.add(kind)
            say(sentence)


def is_due(now: float, *, said: float | None, safe_at: float) -> bool:
    """Whether a failure is said (again): at once, then when the time without a save has doubled."""
    return said is None or now - said >= max(SAID_AT_MOST, said - safe_at)


def last_safe(safe: int | None, step: int, seconds: float) -> str:
    """What is at stake."""
    if safe is None:
        return "nothing is saved yet"
    steps = "1 step" if step - safe == 1 else f"{step - safe} steps"
    return f"last safe step {safe}, {steps} and {duration(seconds)} ago"


def _number(name: str, otherwise: int) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isdigit() else otherwise
