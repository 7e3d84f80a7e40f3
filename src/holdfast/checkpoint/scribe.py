"""One rank's side of a save: capture, stage, ask the writer, hear the outcome."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from holdfast.checkpoint import direct
from holdfast.checkpoint.announce import Board
from holdfast.checkpoint.messages import About, Answer, Failed, Save
from holdfast.checkpoint.print_line import say
from holdfast.checkpoint.staging import Buffer, NoRoomError
from holdfast.checkpoint.state import Captured, State, versions
from holdfast.checkpoint.writing import WriterProcess
from holdfast.errors import EnvironmentFailure, Error
from holdfast.rank.phase import phase

if TYPE_CHECKING:
    from holdfast.checkpoint.sharded import Sharded


def sharded_part(state: State, board: Board) -> Sharded | None:
    """None for a state that every rank holds whole."""
    if state.kind != "sharded":
        return None
    from holdfast.checkpoint.sharded import Sharded  # noqa: PLC0415 - half a second of imports

    return Sharded(state.model, state.optimizer, board)


class Scribe:
    """Holds the buffer and the writer of this rank."""

    def __init__(
        self,
        folder: str,
        state: State,
        *,
        rank: int,
        world_size: int,
        config: dict[str, str],
        keep: int,
        keep_every: int | None,
        sharded: Sharded | None = None,
    ) -> None:
        self._folder, self._state, self._sharded = folder, state, sharded
        self._rank, self._world_size = rank, world_size
        self._config, self._keep, self._keep_every = config, keep, keep_every
        local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        # Of a plain state rank 0 alone takes a copy; the others have next to nothing.
        self._buffer = Buffer(peers=local if state.kind == "sharded" else 1)
        self._writer = WriterProcess()
        self._written: Answer | None = None
        self._no_room = ""

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
            self._say_no_room(problem)

    def save(self, step: int, token: str, *, lock: int) -> None:
        """The stall. Returns when the tensors may change again."""
        began = time.monotonic()
        with phase("save"):
            try:
                captured = self._capture(token)
            except EnvironmentFailure as problem:  # some rank cannot save, or never came
                failed = Failed(step=step, errno=0, what=problem.sentence, where=self._folder)
                self._written = Answer(failed=failed)
                return
            try:
                staged = self._buffer.stage(captured.tensors, captured.text)
            except NoRoomError as problem:
                self._say_no_room(problem)
                asked = self._message(captured, step, token)
                self._written = direct.save(asked, captured.text, captured.tensors)
                return
            asked = msgspec.structs.replace(
                self._message(captured, step, token),
                pieces=staged.pieces(self._rank, self._buffer.fd),
                stall=time.monotonic() - began,
            )
            fds = (self._buffer.fd, lock) if lock >= 0 else (self._buffer.fd,)
            self._writer.ask(asked, fds)

    def outcome(self, timeout: float | None = 0.0) -> Answer | None:
        """Of the pending save; None when it is not known yet, or there is none."""
        if self._written is not None:
            written, self._written = self._written, None
            return written
        return self._writer.answer(timeout)

    def close(self) -> None:
        """What is still being written is given up."""
        self._writer.close(0.0)
        self._buffer.close()

    def _capture(self, token: str) -> Captured:
        if self._sharded is None:
            return self._state.capture(self._rank)
        share = self._sharded.collect(token)
        captured = self._state.capture(self._rank, sharded=share.node)
        return replace(captured, tensors=[*captured.tensors, *share.tensors])

    def _message(self, captured: Captured, step: int, token: str) -> Save:
        return Save(
            folder=self._folder,
            step=step,
            token=token,
            rank=self._rank,
            world_size=self._world_size,
            pieces=(),
            about=About(
                epoch=self._state.epoch,
                kind=self._state.kind,
                structure=captured.structure,
                config=self._config,
                versions=versions(),
                data=self._state.data_scope,
                run=os.environ.get("TORCHELASTIC_RUN_ID", ""),
            ),
            keep=self._keep,
            keep_every=self._keep_every,
        )

    def _say_no_room(self, problem: Error) -> None:
        if not self._no_room:
            self._no_room = problem.sentence
            say(f"{problem.sentence}: training waits while a checkpoint is written")
