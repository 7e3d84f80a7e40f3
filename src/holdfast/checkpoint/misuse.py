"""Mistakes in a script that would show only at the first save, or at the resume: told at once.

resume() was not called, although the folder has checkpoints      refused at the first step
the loader is iterated without sampler.follow                     refused at the first step
the sampler that State was given is not iterated at all           a line at the first step
ckpt.step() inside a global batch, or several times a step        a line, in the first steps
ckpt.step() on some ranks only, or never                          a line, in the first seconds
--nnodes MIN:MAX, and a state that fits no other number of ranks  a line at the first step
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from holdfast.analysis.checkpoints import manifest
from holdfast.checkpoint import compare
from holdfast.checkpoint.message_board import MessageBoard
from holdfast.checkpoint.sampler import Sampler
from holdfast.checkpoint.state import State
from holdfast.errors import ConfigError
from holdfast.rank import delivery
from holdfast.rank.print_line import say
from holdfast.text import plural, ranks

ENOUGH_CALLS = 20
"""of ckpt.step() before it is compared with the optimizer's steps: a scaler skips some at first"""
CALLS_FOR_ONE = 1.9
"""of ckpt.step() for one optimizer step: more is a mistake"""
NEVER_AFTER = 50
"""optimizer steps without a single ckpt.step() or ckpt.save()"""
SECONDS_FOR_RANKS = 5.0
SYNC_POINTS_FOR_RANKS = 4
"""that rank 0 has been through before it asks which ranks have called ckpt.step()"""


class OptimizerSteps:
    """How many steps an optimizer has made since this was created; 0 where it does not tell."""

    def __init__(self, optimizer: Any, at_many: Callable[[], None]) -> None:
        self.count = 0
        self._at_many = at_many
        register = getattr(optimizer, "register_step_post_hook", None)
        self._hook = register(self._note) if register is not None else None

    def _note(self, *_: object) -> None:
        self.count += 1
        if self.count == NEVER_AFTER:
            self._at_many()

    # What `torch.compiler.disable` sets, without the second that importing the compiler takes.
    _note._torchdynamo_disable = True  # type: ignore[attr-defined]  # noqa: SLF001

    def close(self) -> None:
        if self._hook is not None:
            self._hook.remove()
            self._hook = None


class MisuseWatch:
    """One per Checkpoint and rank; rank 0 speaks for all where all do the same."""

    def __init__(self, folder: str, state: State, board: MessageBoard) -> None:
        self._folder, self._state, self._board = folder, state, board
        self.optimizer = OptimizerSteps(state.optimizer, self._check_called)
        self._began = 0.0
        self._calls = 0
        self.saved = False
        """`ckpt.save()` was called"""
        self._inside = self._ranks_known = self._rate_known = False

    def check_first_step(self, start: int, *, resumed: bool) -> None:
        """Before step `start + 1` counts."""
        self._began = time.monotonic()
        if self._board.rank == 0 and not resumed:
            refuse_beside(self._folder, start)
        nodes = os.environ.get(delivery.NODES, "")
        if nodes and not fits_any_world(self._state):
            self._say(bound_to_ranks(nodes, self._state))
        sampler = _sampler_of(self._state.data)
        if sampler is not None:
            sampler.refuse_if_lost()
            if not sampler.was_followed:
                self._say(
                    "the Sampler that State(data=…) was given is not iterated: make the loader "
                    "with batch_sampler=sampler, and iterate it with sampler.follow(loader)"
                )

    def note_step(self, step: int) -> None:
        self._calls += 1
        sampler = _sampler_of(self._state.data)
        if sampler is not None and sampler.following and not sampler.is_last_micro_batch:
            if not self._inside:
                self._inside = True
                self._say(
                    f"step {step}: ckpt.step() was called inside a global batch; write `if "
                    "sampler.is_last_micro_batch: optimizer.step(); optimizer.zero_grad(); "
                    "ckpt.step()`, else a resume trains on samples twice"
                )
        elif not self._rate_known and self._calls >= ENOUGH_CALLS:
            self._rate_known = True
            self._compare_rates()

    def _compare_rates(self) -> None:
        steps = self.optimizer.count
        if not self._inside and too_many_calls(self._calls, steps):
            self._say(
                f"ckpt.step() was called {self._calls} times for {steps} optimizer "
                f"{plural(range(steps), 'step', 'steps')}: call it once after each; a save between "
                "two of them loses the gradients that were added up so far"
            )

    def _check_called(self) -> None:
        if not self._calls and not self.saved:
            self._say(
                f"{NEVER_AFTER} optimizer steps, and ckpt.step() was not called: nothing is saved; "
                "call it on every rank after every optimizer step"
            )

    def check_ranks(self, number: int, step: int) -> None:
        """Rank 0, at the sync point of that number."""
        if self._ranks_known or number < SYNC_POINTS_FOR_RANKS:
            return
        if time.monotonic() < self._began + SECONDS_FOR_RANKS:
            return
        self._ranks_known = True
        others = range(1, self._board.world_size)
        if self._board.is_posted(*(f"started/{rank}" for rank in others)):
            return
        if silent := [rank for rank in others if not self._board.is_posted(f"started/{rank}")]:
            self._say(
                f"step {step}: {ranks(silent)} {plural(silent, 'has', 'have')} not called "
                "ckpt.step(): call it on every rank, or no checkpoint will be complete"
            )

    def _say(self, sentence: str) -> None:
        if sentence and self._board.rank == 0:
            say(sentence)


def fits_any_world(state: State) -> bool:
    """Whether resume() takes its saves with another number of ranks."""
    accepted = "world-size" in compare.accepted((), os.environ)
    return not state.bound_to_ranks and (accepted or state.data_scope == "global")


def bound_to_ranks(nodes: str, state: State) -> str:
    """What a job with `--nnodes NODES` cannot do: go on with fewer. '' where it can."""
    if state.bound_to_ranks:
        return (
            f"with --nnodes {nodes} the number of ranks may change, and resume() will then refuse: "
            f"each rank saves its own {' and '.join(state.bound_to_ranks)}; use a fixed --nnodes"
        )
    if state.data_scope == "global":
        return ""
    position = "is unknown" if state.data_scope == "unknown" else "is saved per rank"
    return (
        f"with --nnodes {nodes} the number of ranks may change, and resume() will then refuse: the "
        f"data position {position}; use State(data=holdfast.Sampler(…)), or accept it now with "
        f"{compare.ACCEPT}=world-size"
    )


def too_many_calls(calls: int, optimizer_steps: int) -> bool:
    """Unknown where the optimizer made none: it may run in a CUDA graph, or be another one."""
    return optimizer_steps > 0 and calls >= CALLS_FOR_ONE * optimizer_steps


def refuse_beside(folder: str, start: int) -> None:
    """Saves of a run that starts over would be mixed with those that are there, and removed as the
    older ones."""
    try:
        names = os.listdir(folder)
    except OSError:  # taking the folder says so
        return
    newest = max((found for found in map(manifest.step_of, names) if found is not None), default=-1)
    if newest > start:
        raise ConfigError(
            f"{folder} has checkpoints up to step {newest}, and this run starts at step {start} "
            "without ckpt.resume()",
            hint="call ckpt.resume() before training, or give an empty folder",
        )


def _sampler_of(data: object) -> Sampler | None:
    """`data` is what a State was given: anything but our own sampler is the script's business."""
    sampler = data if isinstance(data, Sampler) else getattr(data, "sampler", None)
    return sampler if isinstance(sampler, Sampler) else None
