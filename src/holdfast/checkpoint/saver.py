"""One rank's saves: captured, staged, handed to the writer, and what became of them.

One save at a time; save_in_flight.py waits for it.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from holdfast.checkpoint import direct_save
from holdfast.checkpoint.cores import disk_threads, ranks_here
from holdfast.checkpoint.memory_gate import LARGE
from holdfast.checkpoint.memory_room import NoRoomError
from holdfast.checkpoint.message_board import MessageBoard
from holdfast.checkpoint.messages import (
    CheckpointInfo,
    SaveAnswer,
    SaveFailure,
    SaveOrder,
)
from holdfast.checkpoint.run_config import RunConfig
from holdfast.checkpoint.staging import StagingBuffer
from holdfast.checkpoint.state import CapturedState, State, versions
from holdfast.checkpoint.writer_process import WriterProcess
from holdfast.errors import ConfigError, EnvironmentFailure, Error
from holdfast.rank.phase import phase
from holdfast.rank.print_line import say

if TYPE_CHECKING:
    from holdfast.checkpoint.sharded import ShardedState


def sharded_part(state: State, board: MessageBoard) -> ShardedState | None:
    """None for a state that every rank holds whole."""
    if state.kind != "sharded":
        return None
    from holdfast.checkpoint.sharded import ShardedState  # noqa: PLC0415 - half a second of imports

    return ShardedState(state, board)


class Saver:
    """Holds the buffer and the writer of this rank."""

    def __init__(
        self,
        folder: str,
        state: State,
        *,
        rank: int,
        world_size: int,
        config: RunConfig,
        keep: int,
        keep_every: int | None,
        sharded: ShardedState | None = None,
    ) -> None:
        self._folder, self._state, self._sharded = folder, state, sharded
        self._rank, self._world_size = rank, world_size
        self._config, self._keep, self._keep_every = config, keep, keep_every
        self.owner = ""
        """the token of the folder's lock: a writer that has lost it commits nothing"""
        # Of a state that all ranks share rank 0 alone takes a copy; the others have little.
        everybody = state.kind == "sharded" or state.bound_to_ranks
        self._peers = ranks_here() if everybody else 1
        self._buffer = StagingBuffer(peers=self._peers)
        self._writer = WriterProcess()
        self._written: SaveAnswer | None = None
        self.structure = ""
        """fingerprint of what was captured last, on rank 0"""
        self._no_room = self._no_pin = ""
        self._has_captured = False

    @property
    def busy(self) -> bool:
        return self._writer.busy or self._written is not None

    def prepare(self) -> None:
        """What cannot be saved is said in the first steps, not after an hour; and the memory is
        taken, in the background, before the first save has to wait for it."""
        try:
            captured = self._capture("first")
        except EnvironmentFailure:  # of another rank, which says it; a save would say it again
            return
        try:
            self._buffer.warm(captured.tensors, len(captured.text))
        except NoRoomError as problem:
            self._print_no_room(problem)
        if sum(named.size for named in captured.tensors) < LARGE:
            self._buffer.settle()

    @property
    def taking_memory(self) -> bool:
        """A save would have to wait for it."""
        return self._buffer.busy

    @property
    def is_large(self) -> bool:
        """As far as the parameters tell: the optimizer's state comes with its first step."""
        parameters = self._state.model.parameters() if self._state.model else ()
        return sum(each.nbytes for each in parameters) >= LARGE

    def save(self, step: int, token: str, *, lock: int) -> None:
        """The stall. Returns when the tensors may change again."""
        began = time.monotonic()
        with phase("save"):
            try:
                captured = self._capture(token)
                asked = self._message(captured, step, token)
            except (EnvironmentFailure, ConfigError) as problem:
                # Some rank cannot save, or never came. What never could be saved ends the job in
                # its first steps; what cannot be any more is no reason to end a training.
                if isinstance(problem, ConfigError) and not self._has_captured:
                    raise
                failed = SaveFailure(step=step, errno=0, what=problem.sentence, where=self._folder)
                self._written = SaveAnswer(failed=failed)
                return
            try:
                staged = self._buffer.stage(captured.tensors, captured.text)
            except NoRoomError as problem:
                self._print_no_room(problem)
                self._written = direct_save.save(asked, captured.text, captured.tensors)
                return
            asked = msgspec.structs.replace(
                asked,
                lock=lock,
                pieces=staged.pieces(self._rank, self._buffer.fd),
                stall=time.monotonic() - began,
            )
            self._print_not_pinned()
            fds = (self._buffer.fd, lock) if lock >= 0 else (self._buffer.fd,)
            self._writer.ask(asked, fds)

    def outcome(self, timeout: float | None = 0.0) -> SaveAnswer | None:
        """Of the pending save; None when it is not known yet, or there is none."""
        if self._written is not None:
            written, self._written = self._written, None
            return written
        return self._writer.answer(timeout)

    def close(self) -> None:
        """What is still being written is finished by the writer alone."""
        self._writer.close(0.0)
        self._buffer.close()

    def _capture(self, token: str) -> CapturedState:
        share = self._sharded.collect(token) if self._sharded else None
        captured = self._state.capture(
            self._rank,
            sharded=share.node if share else None,
            structure=share.structure if share else None,
        )
        self.structure = captured.structure
        self._has_captured = True
        if share is None:
            return captured
        return replace(captured, tensors=[*captured.tensors, *share.tensors])

    def _message(self, captured: CapturedState, step: int, token: str) -> SaveOrder:
        return SaveOrder(
            folder=self._folder,
            step=step,
            token=token,
            rank=self._rank,
            world_size=self._world_size,
            pieces=(),
            threads=disk_threads(self._peers),
            owner=self.owner,
            about=CheckpointInfo(
                epoch=self._state.epoch,
                kind=self._state.kind,
                structure=captured.structure,
                config=self._config.texts(wait=False),
                versions=versions(),
                data=self._state.data_scope,
                run=os.environ.get("TORCHELASTIC_RUN_ID", ""),
                per_rank=self._state.bound_to_ranks,
            ),
            keep=self._keep,
            keep_every=self._keep_every,
        )

    def _print_not_pinned(self) -> None:
        if self._buffer.not_pinned and not self._no_pin:
            self._no_pin = self._buffer.not_pinned
            say(f"the copy of the state: {self._no_pin}; saves pause training for longer")

    def _print_no_room(self, problem: Error) -> None:
        if not self._no_room:
            self._no_room = problem.sentence
            say(f"{problem.sentence}: training pauses while a checkpoint is written")
