"""`holdfast.Checkpoint`: what the script calls, and when to save, by rank 0's announcements.

step() -> a sync point (sync_points.py)? -> announcement (message_board.py) -> save (saver.py)
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import time
from collections.abc import Collection
from types import TracebackType
from typing import Any

from holdfast.checkpoint import compare, process_group, resume, save_schedule, shared_folder
from holdfast.checkpoint.answering_store import StoreTroubleError
from holdfast.checkpoint.compare import Accept
from holdfast.checkpoint.lock import FolderLock
from holdfast.checkpoint.memory_gate import MemoryGate
from holdfast.checkpoint.message_board import MessageBoard
from holdfast.checkpoint.misuse import MisuseWatch, fits_any_world
from holdfast.checkpoint.peers import Peers
from holdfast.checkpoint.ranks.comparison import RankComparison
from holdfast.checkpoint.remote.remote_folder import check_url
from holdfast.checkpoint.remote.uploads import Uploads
from holdfast.checkpoint.run_config import RunConfig
from holdfast.checkpoint.save_in_flight import SaveInFlight
from holdfast.checkpoint.save_log import SaveLog
from holdfast.checkpoint.save_schedule import Announcement
from holdfast.checkpoint.saver import Saver, sharded_part
from holdfast.checkpoint.sigterm import SigtermGrace, grace_time, stop_signals
from holdfast.checkpoint.state import State
from holdfast.checkpoint.sync_points import SyncPoints
from holdfast.errors import EnvironmentFailure
from holdfast.rank.durations import Duration
from holdfast.rank.phase import heartbeat
from holdfast.rank.print_line import say

SECONDS_AFTER_FAILURE = 1.5
"""for a write in flight when the script has failed: peers that are gone will not help"""
SECONDS_BEHIND = 0.5
"""by which ranks that received no SIGTERM let the one that did exit first, so that it is named"""


class Checkpoint:
    """Saves `state` into `folder` while training continues, and resumes from it.

    Make one on every rank, with the same arguments, after the process group. Call `resume()` once,
    `step()` after every optimizer step, and `save()` at the end. As a context manager it closes
    itself.

    Args:
        folder: on a file system that all machines of the job share.
        state: what to save.
        every: how often to save: a text such as "5m", a timedelta, seconds, or "auto", which
            measures what a save costs. A number of steps goes to `every_steps`.
        every_steps: save at every multiple of so many steps, instead of `every`.
        keep: how many of the newest checkpoints stay.
        keep_every_steps: of every so many steps, the first checkpoint stays for good.
        config: what must not change unnoticed between two starts of the run: a mapping, a
            namespace or a dataclass. Rank 0's counts; what differs between ranks, and what has
            no text that lasts (an object printed with its address), is named and not compared.
        upload_to: a copy of every checkpoint goes there, in the background, and the newest one
            comes back when `folder` has none: "s3://bucket/run", or what else fsspec can reach.

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
        upload_to: str | None = None,
    ) -> None:
        self.folder, self.state = os.path.abspath(os.fspath(folder)), state
        self._interval = save_schedule.save_interval(every, every_steps)
        self._rank, world_size = process_group.rank_and_world_size()
        if self._rank == 0 and isinstance(every, int | float):  # steps, to many a reader
            say(f'every={every:g} means {every:g} seconds: write every="{every:g}s", or '
                f"every_steps={every:g} if steps were meant")  # fmt: skip
        self._board = MessageBoard(
            process_group.job_store(), rank=self._rank, world_size=world_size
        )
        self._config = RunConfig(config, self._board)
        self._lock = FolderLock(self.folder)
        self._sharded = sharded_part(state, self._board)
        self._uploads: Uploads | None = None
        if upload_to is not None:
            check_url(upload_to)
            self._uploads = Uploads(upload_to, keep=keep, keep_every=keep_every_steps)
        offer = self._uploads.offer if self._uploads is not None else None
        self._log = SaveLog(self._interval, offer=offer, any_world=lambda: fits_any_world(state))
        self._saver = Saver(
            self.folder,
            state,
            rank=self._rank,
            world_size=world_size,
            config=self._config,
            keep=keep,
            keep_every=keep_every_steps,
            sharded=self._sharded,
        )
        self._saver.owner = self._lock.token
        self._sync = SyncPoints(self._board, self._interval)
        self._in_flight = SaveInFlight(self._saver, self._board, self._log)
        self._memory = MemoryGate(self._board)
        self._comparison = RankComparison(self._board, state)
        self._comparison.accepted = "ranks" in compare.accepted((), os.environ)
        self._compared: str | None = None
        self._grace = SigtermGrace(
            seconds=grace_time(os.environ),
            missing_peer=Peers(self._board).missing,
            is_quiet=self._rank != 0,
            signals=stop_signals(os.environ),
        )
        self._grace.open()
        self._misuse = MisuseWatch(self.folder, state, self._board)
        self._stop_requested = self._closed = self._resumed = False
        self._pid = os.getpid()
        atexit.register(self._at_exit)

    # --- what the script calls -----------------------------------------------------------------

    @property
    def last_committed(self) -> int | None:
        """The newest step that is safe on disk, or None; other ranks learn it after rank 0."""
        return self._in_flight.committed

    def resume(self, accept: Collection[Accept] | Accept = ()) -> int:
        """Load the newest checkpoint that verifies. All ranks must call it.

        Args:
            accept: changes since the save that are intended and not refused: "config" (another
                configuration; what the script now sets otherwise in its optimizer and scheduler,
                such as the learning rate, is then in force), "world-size" (another number of ranks,
                where the data position was saved per rank), "data" (another dataset, seed or global
                batch size: its epoch starts from the beginning), "fresh" (checkpoints that cannot
                be used are skipped, and without any other the run starts at step 0), "ranks" (ranks
                hold different state, and rank 0's is right for all). The variable HOLDFAST_ACCEPT
                adds to it.

        Returns:
            The step to continue from; 0 when there is no checkpoint.

        Raises:
            ResumeRefused: the checkpoint is not from this run; `slugs` says why.
            EnvironmentFailure: the folder cannot be used, another job uses it, not all ranks see
                it, or its newest checkpoint cannot be read now.
        """
        accepted = compare.accepted(accept, os.environ)
        self._comparison.accepted = "ranks" in accepted
        self._in_flight.committed = resume.resume(
            self._board,
            self.folder,
            self.state,
            config=self._config,
            accept=accepted,
            lock=self._lock,
            sharded=self._sharded,
            uploaded_to=self._uploads.url if self._uploads is not None else "",
        )
        self._resumed = True
        return self.state.step

    def step(self) -> None:
        """Call it on every rank, once after every optimizer step: counts it, saves when due.

        Raises:
            RanksDiffer: in the first steps: ranks hold different state, and only rank 0's would be
                saved.
            EnvironmentFailure: in the first steps: the folder cannot be used, or is another one on
                another machine.
        """
        self.state.step = step = self.state.step + 1
        heartbeat()
        self._misuse.note_step(step)
        if step >= self._sync.next or self._grace.received:
            self._check(step)

    def request_save(self) -> None:
        """Ask for a save at the next point all ranks agree on, within about half a second.

        Any rank may call it; it returns at once.
        """
        self._sync.request("save")

    def save(self) -> bool:
        """Save now, and wait until it is on disk. All ranks must call it, at the same step.

        Returns:
            True when this step is safe on disk, on every rank the same.

        Raises:
            RanksDiffer: ranks hold different state, and only rank 0's would be saved.
        """
        self._misuse.saved = True
        try:
            if not self._comparison.begun:
                self._comparison.begin("save")
            return self._in_flight.save_now(
                self.state.step, self._take_folder, optimizer_steps=self._misuse.optimizer.count
            )
        except StoreTroubleError as trouble:
            say(f"step {self.state.step} was not saved: {trouble.sentence}")
            return False

    def close(self) -> None:
        """Wait until what was staged is on disk. At the end of the process it happens by itself."""
        self._close(None)

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: object, __: TracebackType | None
    ) -> None:
        self._close(None if kind is None else SECONDS_AFTER_FAILURE)

    # --- sync points ---------------------------------------------------------------------------

    def _check(self, step: int) -> None:
        if not self._sync.started:
            self._start(step - 1)
        if self._grace.received and not self._stop_requested:
            self._stop_requested = self._sync.request("stop")
        if step >= self._sync.next:
            before, received = self._sync.trouble, self._grace.received
            if (current := self._sync.at(step)) is not None:
                self._sync_point(step, current)
            if self._rank == 0:
                self._announce_next(step)
            self._print_trouble(before)
            if current is not None and current.stop:
                self._stop(step, current.token, received=received)

    def _start(self, start: int) -> None:
        self._misuse.check_first_step(start, resumed=self._resumed)
        self._sync.start(start)
        if self._rank == 0:
            self._take_folder()
            if not self._resumed:
                shared_folder.post(self._board, self._lock.token)

    def _take_folder(self) -> int:
        """Rank 0: the lock's descriptor; -1 where the folder cannot be locked."""
        resume.take_folder(self.folder, self._lock)
        return self._lock.fd

    def _sync_point(self, step: int, current: Announcement) -> None:
        if current.number == 2:  # by now the optimizer has made its state
            if self._rank and not self._resumed:
                shared_folder.refuse_own_disk(self._board, self.folder)
            self._comparison.begin("2")
            self._saver.prepare()
            self._compared = self._saver.structure
        elif current.compare:
            self._comparison.begin(str(current.number))
            self._compared = self._saver.structure
        else:
            self._comparison.poll()
        self._memory.note(taking=self._saver.taking_memory)
        if current.stop:
            self._grace.note_stop()
        if current.save:
            self._in_flight.settle(left=self._grace.left)
            if not self._in_flight.busy:  # else the grace time is over
                self._saver.save(step, current.token, lock=self._lock.fd)
        self._in_flight.poll()
        if self._uploads is not None:
            self._uploads.poll()
        if self._rank != 0 and current.committed >= 0:
            self._in_flight.committed = current.committed

    def _announce_next(self, step: int) -> None:
        """Rank 0: what happens at the next sync point."""

        def busy(number: int) -> bool:
            self._misuse.check_ranks(number, step)
            large = number == 1 and self._saver.is_large
            return self._memory.is_closed(number, large=large) or self._in_flight.busy

        safe = self._in_flight.committed
        self._sync.announce_next(
            step,
            busy=busy,
            interval=self._log.interval,
            committed=-1 if safe is None else safe,
            compare=self._compared is not None and self._saver.structure != self._compared,
        )

    def _print_trouble(self, before: str) -> None:
        trouble = self._sync.trouble
        if trouble and not before:
            say(f"step {self.state.step}: {trouble}; training continues, without saves for now")
        elif before and not trouble:
            say(f"step {self.state.step}: the ranks agree on saves again")

    # --- the end -------------------------------------------------------------------------------

    def _stop(self, step: int, token: str, *, received: bool) -> None:
        """A signal came, and all is staged: once on disk, it does what it does without us."""
        with contextlib.suppress(EnvironmentFailure):  # rank 0 is gone already
            safe = self._in_flight.agree(token, step, self._grace.left())
            if self._rank == 0:
                how = "saved" if safe else "NOT saved"
                say(f"{self._grace.signal_name}: {how} at step {step}, exiting")
        if self._uploads is not None:  # this machine may soon be gone, and its disk with it
            self._uploads.close(self._grace.left())
        if not received:
            time.sleep(SECONDS_BEHIND)
        self._grace.end()
        # The script's own handler may let it continue, and then receive another.
        self._stop_requested = not self._grace.open()

    def _at_exit(self) -> None:
        if os.getpid() == self._pid:
            self._close(SECONDS_AFTER_FAILURE if hasattr(sys, "last_value") else None)

    def _close(self, seconds: float | None) -> None:
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self._at_exit)
        self._grace.answered()
        self._in_flight.settle(seconds, left=self._grace.left)
        if self._uploads is not None:
            self._uploads.close(seconds)
        self._saver.close()
        self._misuse.optimizer.close()
        with contextlib.suppress(EnvironmentFailure):
            self._board.close(flush=seconds is None)
        self._lock.release()
        if self._grace.close():
            os.kill(os.getpid(), self._grace.signal)
