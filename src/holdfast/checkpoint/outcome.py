"""What becomes of a save, told: events for the launcher, a line where something is wrong."""

from __future__ import annotations

import errno
import os
import time

from holdfast.checkpoint import cadence
from holdfast.checkpoint.messages import Answer, Committed, Failed
from holdfast.checkpoint.print_line import say
from holdfast.checkpoint.timing import Every
from holdfast.rank.events import tell


class Outcomes:
    """Rank 0's memory of what its saves cost and how they ended. The others hear only of their
    own part, and leave the words to rank 0."""

    def __init__(self, every: Every) -> None:
        self._every = every
        self._said: set[tuple[int, str]] = set()
        self._began = time.monotonic()
        self.interval = 0.0
        """seconds, for `every="auto"`; 0 before the first save"""

    def note(self, answer: Answer) -> int | None:
        """The step that is safe now, if one is."""
        if answer.committed is not None:
            return self._committed(answer.committed)
        if answer.failed is not None:
            self._failed(answer.failed)
        return None

    def _committed(self, done: Committed) -> int:
        self._said.clear()
        tell(
            "saved",
            step=done.step,
            path=done.path,
            bytes=done.bytes,
            stall=done.stall,
            seconds=done.seconds,
        )
        if done.not_removed:
            self._say_once(
                (0, "not removed"), f"an old checkpoint is still there: {done.not_removed}"
            )
        if self._every.auto:
            self._learn(done)
        return done.step

    def _learn(self, done: Committed) -> None:
        """Restarts so far, by whatever launcher, are the failures seen; the uptime is that of this
        attempt, so the rate errs on the cautious side."""
        expected = cadence.mtbf(
            uptime=time.monotonic() - self._began,
            failures=_number("TORCHELASTIC_RESTART_COUNT", 0),
            machines=max(1, _number("WORLD_SIZE", 1) // max(1, _number("LOCAL_WORLD_SIZE", 1))),
        )
        before = self.interval
        self.interval = cadence.auto_interval(stall=done.stall, writing=done.seconds, mtbf=expected)
        if abs(self.interval - before) > 0.1 * before:
            tell("cadence", interval=self.interval, stall=done.stall, mtbf=expected)

    def _failed(self, failed: Failed) -> None:
        tell(
            "save-failed",
            step=failed.step,
            why=failed.what,
            errno=failed.errno,
            where=failed.where,
        )
        name = errno.errorcode.get(failed.errno, "")
        what = f"{failed.what} ({name})" if name else failed.what
        self._say_once(
            (failed.errno, failed.what if not failed.errno else ""),
            f"step {failed.step} could not be saved: {what}: {failed.where}; "
            "training goes on, and the next save is tried as planned",
        )

    def _say_once(self, kind: tuple[int, str], sentence: str) -> None:
        """Once a kind, until a save succeeds again."""
        if kind not in self._said:
            self._said.add(kind)
            say(sentence)


def _number(name: str, otherwise: int) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isdigit() else otherwise
