"""The save under way on this rank: polled, waited for, and agreed on by all ranks.

now/CALL     rank 0: the token of the save that all ranks ask for by their CALLth `save()`
here/TOKEN/R rank R has asked for that save as well
safe/TOKEN   rank 0: whether the save of that token has become a checkpoint
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable

import msgspec

from holdfast.checkpoint.message_board import PATIENCE, MessageBoard
from holdfast.checkpoint.save_log import SaveLog
from holdfast.checkpoint.saver import Saver
from holdfast.errors import ConfigError, EnvironmentFailure, Error

POLL_SECONDS = 0.05
SECONDS_FOR_OTHERS = 0.5
"""that rank 0 waits for the others to have read its answer: it may host the store they read"""


class _SaveResult(msgspec.Struct, frozen=True, kw_only=True):
    """Rank 0's answer about a save that all ranks wait for."""

    committed: bool


class _ImmediateSave(msgspec.Struct, frozen=True, kw_only=True):
    """Rank 0's answer about a save that all ranks ask for at this step."""

    step: int
    token: str = ""
    """'' when this step is safe already"""
    refusal: str = ""
    hint: str = ""


class _Here(msgspec.Struct, frozen=True, kw_only=True):
    """A rank's answer that it asks for the save, too."""


class SaveInFlight:
    """One per Checkpoint and rank."""

    def __init__(self, saver: Saver, board: MessageBoard, log: SaveLog) -> None:
        self._saver, self._board, self._log = saver, board, log
        self._calls = self._optimizer_steps = 0
        self._saved_at, self._is_changed = -1, False
        self.committed: int | None = None
        """the newest step known to be safe"""

    @property
    def busy(self) -> bool:
        return self._saver.busy

    def poll(self, timeout: float | None = 0.0) -> bool | None:
        """Whether it went well; None when that is not known, or nothing is in flight."""
        answer = self._saver.outcome(timeout)
        if answer is None:
            return None
        if answer.committed is not None:
            self.committed = answer.committed.step
        if self._board.rank == 0:
            self._log.note(answer, safe=self.committed)
        return answer.failed is None

    def settle(
        self, seconds: float | None = None, *, left: Callable[[], float] = lambda: math.inf
    ) -> bool | None:
        """Wait for it: until it is known, or the time is over. `left` may shorten it meanwhile."""
        until = math.inf if seconds is None else time.monotonic() + seconds
        while self.busy:
            # In pieces: a signal is answered between two of them.
            if (found := self.poll(POLL_SECONDS)) is not None:
                return found
            if time.monotonic() >= until or left() <= 0:
                break
        return None

    # --- all ranks ask for it at once, without an announcement ------------------------------------

    def save_now(
        self, step: int, take_folder: Callable[[], int], *, optimizer_steps: int = 0
    ) -> bool:
        """True when it is on disk. `take_folder`: rank 0's, gives the lock's descriptor or -1.

        `optimizer_steps`: so far. A script that never calls ckpt.step() saves all its steps as one.
        """
        self.settle()
        self._is_changed = self._saved_at == step and optimizer_steps > self._optimizer_steps
        self._saved_at, self._optimizer_steps = step, optimizer_steps
        lock = self._answer_call(step, take_folder) if self._board.rank == 0 else -1
        token = self._receive_call(step).token
        if not token:
            self.committed = step
            return True
        if self._board.rank:
            self._board.post(f"here/{token}/{self._board.rank}", _Here())
        self._saver.save(step, token, lock=lock)
        if self._board.rank == 0 and self.busy:
            self._wait_for_callers(token)
        return self.agree(token, step)

    def _wait_for_callers(self, token: str) -> None:
        """By name, for a rank that never calls `save()`: the writer, which waits for all shares,
        cannot say on the heartbeat page whose is missing."""
        for rank in range(1, self._board.world_size):
            name = f"here/{token}/{rank}"
            self._board.receive(name, _Here, sender=rank)
            self._board.remove(name)

    def _answer_call(self, step: int, take_folder: Callable[[], int]) -> int:
        """Rank 0: the others wait for this answer, also where it is a refusal."""
        name = f"now/{self._calls + 1}"
        try:
            lock = take_folder()
        except Error as problem:
            self._board.post(
                name, _ImmediateSave(step=step, refusal=problem.sentence, hint=problem.hint)
            )
            raise
        is_safe = self.committed == step and not self._is_changed
        token = "" if is_safe else secrets.token_hex(4)
        self._board.post(name, _ImmediateSave(step=step, token=token))
        return lock

    def _receive_call(self, step: int) -> _ImmediateSave:
        """Calls have numbers: two at one step, at the end of an epoch and of the training, are two
        questions. One that rank 0 made without this rank, at an earlier step, is left out."""
        while True:
            self._calls += 1
            found = self._board.receive(f"now/{self._calls}", _ImmediateSave)
            if found.step < step:
                continue
            if found.refusal:
                raise EnvironmentFailure(found.refusal, hint=found.hint)
            if found.step > step:
                raise ConfigError(
                    f"ckpt.save() was called at step {step} on rank {self._board.rank}, and at "
                    f"step {found.step} on rank 0",
                    hint="call it on all ranks at the same step",
                )
            return found

    def agree(self, token: str, step: int, seconds: float | None = None) -> bool:
        """On every rank: whether the save of that token has become a checkpoint."""
        found = bool(self.settle(seconds))
        name = f"safe/{token}"
        if self._board.rank == 0:
            self._board.post(name, _SaveResult(committed=found))
            self._wait_for_readers(name)
            return found
        patience = PATIENCE if seconds is None else seconds
        found = self._board.receive(name, _SaveResult, patience=patience).committed
        self._board.count(f"{name}/read")
        if found:
            self.committed = step
        return found

    def _wait_for_readers(self, name: str) -> None:
        until = time.monotonic() + SECONDS_FOR_OTHERS
        while self._board.count(f"{name}/read", 0) < self._board.world_size - 1:
            if time.monotonic() > until:
                return
            time.sleep(POLL_SECONDS)
