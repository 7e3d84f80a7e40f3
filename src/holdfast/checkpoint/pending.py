"""The save in flight: heard of, waited for, agreed on by all ranks."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable

import msgspec

from holdfast.checkpoint.announce import PATIENCE, Board
from holdfast.checkpoint.outcome import Outcomes
from holdfast.checkpoint.scribe import Scribe

LOOK_AGAIN = 0.05
LAST = 0.5
"""seconds that rank 0 waits for the others to have heard: it may serve the store they ask"""


class _Safe(msgspec.Struct, frozen=True, kw_only=True):
    """Rank 0's word about a save that all wait for."""

    committed: bool


class _Now(msgspec.Struct, frozen=True, kw_only=True):
    """Rank 0's word about a save that all ranks ask for at this step."""

    token: str
    """'' when this step is safe already"""


class Pending:
    def __init__(self, scribe: Scribe, board: Board, outcomes: Outcomes) -> None:
        self._scribe, self._board, self._outcomes = scribe, board, outcomes
        self.committed: int | None = None
        """the newest step known to be safe"""

    @property
    def busy(self) -> bool:
        return self._scribe.busy

    def hear(self, timeout: float | None = 0.0) -> bool | None:
        """Whether it went well; None when that is not known, or nothing is in flight."""
        answer = self._scribe.outcome(timeout)
        if answer is None:
            return None
        if answer.committed is not None:
            self.committed = answer.committed.step
        if self._board.rank == 0:
            self._outcomes.note(answer)
        return answer.failed is None

    def settle(
        self, seconds: float | None = None, *, left: Callable[[], float] = lambda: math.inf
    ) -> bool | None:
        """Wait for it: until it is known, or the time is over. `left` may shorten it meanwhile."""
        until = math.inf if seconds is None else time.monotonic() + seconds
        while self.busy:
            # In pieces: a signal is answered between two of them.
            if (found := self.hear(LOOK_AGAIN)) is not None:
                return found
            if time.monotonic() >= until or left() <= 0:
                break
        return None

    def save_now(self, step: int, *, lock: int) -> bool:
        """All ranks at once, without a word before: true when it is safe."""
        self.settle()
        name = f"now/{step}"
        if self._board.rank == 0:
            is_safe = self.committed == step
            self._board.say(name, _Now(token="" if is_safe else secrets.token_hex(4)))
        token = self._board.hear(name, _Now).token
        if not token:
            return True
        self._scribe.save(step, token, lock=lock)
        return self.agree(step)

    def agree(self, step: int, seconds: float | None = None) -> bool:
        """On every rank: whether the save of this step has become a checkpoint."""
        found = bool(self.settle(seconds))
        name = f"safe/{step}"
        if self._board.rank == 0:
            self._board.say(name, _Safe(committed=found))
            self._until_all_have_heard(name)
            return found
        patience = PATIENCE if seconds is None else seconds
        found = self._board.hear(name, _Safe, patience=patience).committed
        self._board.count(f"{name}/heard")
        if found:
            self.committed = step
        return found

    def _until_all_have_heard(self, name: str) -> None:
        until = time.monotonic() + LAST
        while self._board.count(f"{name}/heard", 0) < self._board.world_size - 1:
            if time.monotonic() > until:
                return
            time.sleep(LOOK_AGAIN)
