"""`holdfast.Checkpoint`: when to save, by rank 0's word, and what the script calls.

step() -> a point (save_schedule.py)? -> rank 0's word (message_board.py) -> save (saver.py)
"""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import signal
import sys
import time
from collections.abc import Collection
from types import TracebackType
from typing import Any

import msgspec

from holdfast.checkpoint import compare, process_group, resume, save_schedule
from holdfast.checkpoint.compare import Accept
from holdfast.checkpoint.lock import Lock
from holdfast.checkpoint.message_board import Board, Call
from holdfast.checkpoint.sampler import inside_global_batch
from holdfast.checkpoint.saver import Outcomes, Pending, Scribe, sharded_part
from holdfast.checkpoint.sigterm import Grace, grace_time
from holdfast.checkpoint.state import State
from holdfast.errors import EnvironmentFailure
from holdfast.rank.durations import Duration
from holdfast.rank.phase import heartbeat
from holdfast.rank.print_line import say

AFTER_A_FAULT = 1.5
"""seconds for a write in flight when the script has failed: peers that are gone will not help"""
SECOND = 0.5
"""seconds by which ranks that were not told to end let the one that was go first, to be named"""


class Checkpoint:
    """Saves `state` into `folder` while training goes on, and resumes from it.

    Make one on every rank, with the same arguments, after the process group. Call `resume()` once,
    `step()` after every optimizer step, and `save()` at the end. As a context manager it closes
    itself.

    Args:
        folder: on a file system that all machines of the job share.
        state: what to save.
        every: how often to save: seconds, a timedelta, a text such as "5m", or "auto", which
            measures what a save costs.
        every_steps: save at every multiple of so many steps, instead of `every`.
        keep: how many of the newest checkpoints stay.
        keep_every_steps: of every so many steps, the first checkpoint stays for good.
        config: what must not change unnoticed between two starts of the run: a mapping, a
            namespace or a dataclass.

    Raises:
        ConfigError: an argument makes no sense, or there is no process group yet.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        state: State,
        *,
        every: Duration = "auto",
        every_steps: int | None = None,
        keep: int = 3,
        keep_every_steps: int | None = None,
        config: Any = None,
    ) -> None:
        self.folder, self.state = os.path.abspath(os.fspath(folder)), state
        self._every = save_schedule.save_interval(every, every_steps)
        self._config = compare.texts(config)
        self._rank, world_size = process_group.rank_and_world_size()
        self._board = Board(process_group.job_store(), rank=self._rank, world_size=world_size)
        self._lock = Lock(self.folder)
        self._sharded = sharded_part(state, self._board)
        self._outcomes = Outcomes(self._every)
        self._scribe = Scribe(
            self.folder,
            state,
            rank=self._rank,
            world_size=world_size,
            config=self._config,
            keep=keep,
            keep_every=keep_every_steps,
            sharded=self._sharded,
        )
        self._pending = Pending(self._scribe, self._board, self._outcomes)
        self._grace = Grace(seconds=grace_time(os.environ), pace=lambda: self._pace)
        self._grace.open()
        self._word: save_schedule.Word | None = None
        self._decider: save_schedule.Decider | None = None
        self._next = -1
        self._last_point, self._pace = (0, 0.0), 0.0
        self._wish: save_schedule.Wish = ""
        self._called = self._closed = self._warned = False
        self._pid = os.getpid()
        atexit.register(self._at_exit)

    # --- what the script calls -----------------------------------------------------------------

    @property
    def last_committed(self) -> int | None:
        """The newest step that is safe on disk, or None; other ranks learn it after rank 0."""
        return self._pending.committed

    def resume(self, accept: Collection[Accept] | Accept = ()) -> int:
        """Load the newest checkpoint that verifies. All ranks must call it.

        Args:
            accept: changes since the save that are intended and not refused: "config" (another
                configuration; what is restored, such as the optimizer's learning rate, is the
                saved one), "world-size" (another number of ranks, where the data position was
                saved per rank), "data" (another dataset, seed or global batch size: its epoch
                starts from the beginning). The variable HOLDFAST_ACCEPT adds to it.

        Returns:
            The step to continue from; 0 when there is no checkpoint.

        Raises:
            ResumeRefused: the checkpoint is not from this run; `slugs` says why.
            EnvironmentFailure: the folder cannot be used, or another job uses it.
        """
        self._pending.committed = resume.resume(
            self._board,
            self.folder,
            self.state,
            config=self._config,
            accept=compare.accepted(accept, os.environ),
            lock=self._lock,
            sharded=self._sharded,
        )
        return self.state.step

    def step(self) -> None:
        """Call it on every rank, once after every optimizer step: counts it, saves when due."""
        self.state.step = step = self.state.step + 1
        heartbeat()
        if not self._warned and inside_global_batch(self.state.data):
            self._warn()
        if step >= self._next or self._grace.told:
            self._look(step)

    def request_save(self) -> None:
        """Ask for a save at the next point all ranks agree on, within about half a second.

        Any rank may call it; it returns at once.
        """
        self._call("save")

    def save(self) -> bool:
        """Save now, and wait until it is on disk. All ranks must call it, at the same step.

        Returns:
            True when this step is safe on disk, on every rank the same.
        """
        if self._rank == 0:
            resume.take_folder(self.folder, self._lock)
        return self._pending.save_now(self.state.step, lock=self._lock.fd)

    def close(self) -> None:
        """Wait until what was staged is on disk. At the end of the process it happens by itself."""
        self._close(None)

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: object, __: TracebackType | None
    ) -> None:
        self._close(None if kind is None else AFTER_A_FAULT)

    def _warn(self) -> None:
        self._warned = True
        if self._rank == 0:
            say(
                f"step {self.state.step}: ckpt.step() was called inside a global batch; write "
                "`if sampler.is_last_micro_batch: optimizer.step(); optimizer.zero_grad(); "
                "ckpt.step()`, else a resume trains on samples twice"
            )

    # --- points --------------------------------------------------------------------------------

    def _look(self, step: int) -> None:
        if self._word is None:
            self._begin(step - 1)
        if self._grace.told and not self._called:
            self._called = True
            self._grace.answered()
            self._call("stop")
        if step >= self._next:
            self._point(step)

    def _begin(self, start: int) -> None:
        now = time.monotonic()
        self._word = save_schedule.first_word(start)
        self._next = start + 1
        self._last_point = (start, now)
        if self._rank == 0:
            self._decider = save_schedule.Decider(self._every, start=start, now=now)
            resume.take_folder(self.folder, self._lock)

    def _point(self, step: int) -> None:
        word = self._word
        assert word is not None
        if self._rank != 0 and word.step != self._next:
            word = self._word = self._board.read(word.number + 1)
        if word.number == 2:  # by now the optimizer has made its state
            self._scribe.prepare()
        self._learn_pace(step)
        if word.save:
            self._pending.settle(left=self._grace.left)
            if not self._pending.busy:  # else the time to end is over
                self._scribe.save(step, word.token, lock=self._lock.fd)
        self._pending.hear()
        self._next = word.following
        if self._decider is not None:
            self._decide(self._decider, word)
        elif word.committed >= 0:
            self._pending.committed = word.committed
        if word.stop:
            self._stop(step)

    def _decide(self, decider: save_schedule.Decider, word: save_schedule.Word) -> None:
        """Rank 0: what happens at the next point."""
        for call in self._board.calls():
            self._want(call.kind)
        decider.interval = self._outcomes.interval or decider.interval
        busy = self._pending.busy
        then = decider.decide(word, now=time.monotonic(), busy=busy, wish=self._wish)
        if then.save:
            self._wish = ""
        safe = self._pending.committed
        self._word = msgspec.structs.replace(
            then,
            token=secrets.token_hex(4) if then.save else "",
            committed=-1 if safe is None else safe,
        )
        self._board.publish(self._word)

    def _call(self, wish: save_schedule.Wish) -> None:
        if self._rank == 0:
            self._want(wish)
        elif wish:
            self._board.call(Call(rank=self._rank, kind=wish))

    def _want(self, wish: save_schedule.Wish) -> None:
        self._wish = "stop" if "stop" in (wish, self._wish) else wish

    def _learn_pace(self, step: int) -> None:
        before, then = self._last_point
        self._last_point = (step, time.monotonic())
        self._pace = (self._last_point[1] - then) / max(step - before, 1)

    # --- the end -------------------------------------------------------------------------------

    def _stop(self, step: int) -> None:
        """Told to end, and staged: when it is safe the signal does what it does without us."""
        told = self._grace.told
        self._grace.hear()
        with contextlib.suppress(EnvironmentFailure):  # rank 0 is gone already
            safe = self._pending.agree(step, self._grace.left())
            if self._rank == 0:
                say(f"SIGTERM: {'saved' if safe else 'NOT saved'} at step {step}, ending")
        if not told:
            time.sleep(SECOND)
        self._grace.end()
        # A handler of the script's own may let it go on, and be told again.
        self._called = not self._grace.open()

    def _at_exit(self) -> None:
        if os.getpid() == self._pid:
            self._close(AFTER_A_FAULT if hasattr(sys, "last_value") else None)

    def _close(self, seconds: float | None) -> None:
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self._at_exit)
        self._grace.answered()
        self._pending.settle(seconds, left=self._grace.left)
        self._scribe.close()
        self._lock.release()
        if self._grace.close():
            os.kill(os.getpid(), signal.SIGTERM)
