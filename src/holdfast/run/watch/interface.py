"""What the agent asks of the job's watcher, and what the watcher may have it do."""

from __future__ import annotations

import enum
import signal
from collections.abc import Mapping, Sequence
from typing import Protocol

from holdfast.analysis.scene.scene import SurvivingProcess


class JobAction(enum.Enum):
    """What a watcher wants done."""

    KEEP_RUNNING = "keep running"
    HOLD = "hold"
    """something was seen, evidence is being taken: change nothing"""
    RESTART = "restart"
    STOP = "stop"


class Watcher(Protocol):
    """Decides about the job. All calls come from the agent's one thread; ranks are local ranks."""

    def ranks_started(self, attempt: int, pids: Mapping[int, int]) -> None:
        """A new attempt runs, counted from 0: local rank -> pid."""

    def look(self) -> JobAction:
        """Called every tick, 0.1 s; a job whose ranks all exited 0 is over at GO_ON."""

    def culprits(self) -> frozenset[int]:
        """Local ranks to kill at once when the others are asked to end."""

    def exiting(self) -> frozenset[int]:
        """Local ranks that are on their way out by themselves: their exit handlers may run to the
        end, within the grace time."""

    def fenced(self) -> bool:
        """Asked while ranks are ended: whether the other nodes may start again without this one.
        Then nothing of it may run on, and no save is waited for."""

    def waiting_for_exit(self, ranks: Sequence[int], seconds_left: float) -> None:
        """These local ranks have not exited yet, and are killed in so many seconds."""

    def signal_forwarded(self, sign: signal.Signals, ranks: Sequence[int]) -> None:
        """A signal meant for the script was sent to the local ranks that handle it."""

    def waits_for_others(self, sign: signal.Signals) -> bool:
        """Asked at every tick once a signal asked the launcher to end the job: whether the ranks
        run on until the other nodes have been told. Not for long: who sent it kills next."""

    def told_to_stop(self, sign: signal.Signals) -> None:
        """A signal asked the launcher to end the job; the ranks are ended next."""

    def outlived(self, processes: Sequence[SurvivingProcess], *, ended: bool) -> None:
        """What ranks had started lives on without them: it was ended, or left alone."""

    def ranks_stopped(self, unkillable: Sequence[int]) -> None:
        """All ranks of the attempt are gone, their output is on the screen; but for those processes
        that even SIGKILL did not end."""

    def exit_code(self) -> int:
        """For a job that did not end well."""
