"""Signals to the launcher: those that end the job, and those that are meant for the ranks.

torch's own handler raises wherever the program happens to be, in the middle of a journal line
too. Ours notes the signal, and the agent obeys at its next tick.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any

from holdfast.system import proc

FOR_RANKS = (signal.SIGUSR1, signal.SIGUSR2)
"""Slurm's --signal=USR1@90 and the like: meant for the script, and only we receive them"""
WEIGHT: dict[int, int] = {signal.SIGTERM: 0, signal.SIGHUP: 2}
AGAIN_CTRL_C = 0.5
"""seconds: a shell, srun and a wrapper that all pass one Ctrl-C on do so within milliseconds"""
AGAIN = 1.0
"""seconds for any other signal: a session that ends sends SIGTERM and SIGHUP, both at once"""


def is_hurry(number: int, since_the_first: float) -> bool:
    """Whether the same signal again means: no more grace."""
    return since_the_first >= (AGAIN_CTRL_C if number == signal.SIGINT else AGAIN)


class LauncherSignals:
    """While entered, no signal ends us in the middle of something."""

    def __init__(
        self, to_stop: Sequence[signal.Signals], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._to_stop = to_stop
        self._to_forward = [number for number in FOR_RANKS if number not in to_stop]
        self._clock = clock
        self._before: dict[int, Any] = {}
        self._first: dict[int, float] = {}
        self._for_ranks: list[signal.Signals] = []
        self.hurry = False

    @property
    def told(self) -> signal.Signals | None:
        """What asked us to end the job. Of several SIGTERM, and SIGHUP last: Python hears those
        that come together by number, and that one, 1, only says that the terminal is gone."""
        by_weight = sorted(self._first, key=lambda number: WEIGHT.get(number, 1))
        return signal.Signals(by_weight[0]) if by_weight else None

    def __enter__(self) -> LauncherSignals:
        ours = (*self._to_stop, *self._to_forward)
        self._before = {number: signal.getsignal(number) for number in ours}
        self.listen()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    def listen(self) -> None:
        """Again after every start of ranks: torch sets its own handlers then."""
        for number, before in self._before.items():
            # `nohup` means it: what was ignored when we started stays ignored
            if before is signal.SIG_IGN:
                signal.signal(number, signal.SIG_IGN)
            else:
                stops = number in self._to_stop
                signal.signal(number, self._note_stop if stops else self._note_for_ranks)

    def for_ranks(self) -> list[signal.Signals]:
        """What came since this was last asked, and is the ranks' business."""
        came, self._for_ranks = self._for_ranks, []
        return came

    def _note_stop(self, number: int, _: FrameType | None) -> None:
        now = self._clock()
        if is_hurry(number, now - self._first.setdefault(number, now)):
            self.hurry = True

    def _note_for_ranks(self, number: int, _: FrameType | None) -> None:
        self._for_ranks.append(signal.Signals(number))


def receivers(ranks: Mapping[int, int], number: signal.Signals) -> dict[int, int]:
    """rank -> the process that handles this signal; its default action would end the others.

    A wrapper (`--no-python bash job.sh`) handles nothing: then its only child is asked.
    """
    children: dict[int, list[int]] = {}
    for row in proc.process_table().values():
        children.setdefault(row.parent, []).append(row.pid)
    found = {}
    for rank, pid in ranks.items():
        line = [pid]
        while not proc.handles(line[-1], number) and len(children.get(line[-1], ())) == 1:
            line += children[line[-1]]
        if proc.handles(line[-1], number):
            found[rank] = line[-1]
    return found
