"""transformers' Trainer, or any subclass of it, resumed in the middle of an epoch.

    trainer = Trainer(model=model, args=args, train_dataset=dataset)
    TrainerCheckpoint(trainer, "ckpts", every="5m").train()

The Trainer decides where it continues before model, optimizer and scheduler have their final form,
and asks a folder for it. So `train` gives it a folder with the step alone, and everything else is
restored in `on_train_begin`, when all of it is there. A step is counted in `on_step_end` and saved
in the next `on_step_begin`: the evaluation that is due at that step has happened by then.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast.checkpoint import choose, generators, process_group
from holdfast.checkpoint.checkpoint import Checkpoint
from holdfast.checkpoint.message_board import MessageBoard
from holdfast.checkpoint.state import State
from holdfast.errors import ResumeRefused
from holdfast.integrations.framework import checkpoint_options, require

require("transformers", "5.0", "5.22")

from transformers import TrainerCallback, TrainerState  # noqa: E402 - the sentence above first
from transformers.trainer_callback import ExportableState  # noqa: E402
from transformers.trainer_utils import TrainOutput  # noqa: E402

from holdfast.integrations.accelerate import inside, refuse_backend  # noqa: E402

KEPT = (
    *("epoch", "global_step", "num_input_tokens_seen", "total_flos", "log_history"),
    *("best_metric", "best_global_step", "best_model_checkpoint"),
)
"""of a TrainerState: what training has come to; the rest comes from the arguments of each start"""


class _NewestStep(msgspec.Struct, frozen=True):
    step: int


class _StepDiffersError(Exception):
    """The newest checkpoint turned out to be damaged: another step was restored."""

    def __init__(self, step: int) -> None:
        self.step = step


class _NothingLeftError(Exception):
    """What was restored is the end of the training."""


class TrainerCheckpoint(TrainerCallback):  # type: ignore[misc]
    """Saves what a transformers.Trainer trains, and resumes it.

    Model, optimizer, scheduler, gradient scaler, random numbers, the Trainer's own record
    (`TrainerState`) and the state of callbacks such as early stopping are saved. The Trainer's own
    checkpoints (`save_strategy`, `load_best_model_at_end`) work beside.

    Args:
        trainer: a transformers.Trainer or any subclass.
        folder: on a file system that all machines of the job share.
        extras: what else to save, by name, as in `holdfast.State`.
        accept: changes since the save that are intended, as for `holdfast.Checkpoint.resume`.
        **options: as for `holdfast.Checkpoint`: every, every_steps, keep, keep_every_steps, config.

    Raises:
        ConfigError: an argument makes no sense, or the Trainer's backend is not supported.
    """

    def __init__(
        self,
        trainer: Any,
        folder: str | os.PathLike[str],
        *,
        extras: dict[str, Any] | None = None,
        accept: Any = (),
        **options: Any,
    ) -> None:
        refuse_backend(trainer.accelerator)
        self.trainer, self.folder = trainer, os.fspath(folder)
        self.checkpoint: Checkpoint | None = None
        self._options, self._extras, self._accept = checkpoint_options(options), extras, accept
        self._opened = contextlib.ExitStack()
        self._expected = 0
        self._asked = ""
        self._counted = True
        self._random_numbers: dict[str, Any] = {}
        trainer.add_callback(self)

    def train(self, **options: Any) -> Any:
        """Call it instead of `trainer.train()`: resumes if there is a checkpoint, and trains.

        Args:
            **options: for `trainer.train`, other than `resume_from_checkpoint`.

        Returns:
            What `trainer.train` returns.
        """
        self._expected = self._newest_step()
        with self._opened:
            while (done := self._train(options)) is None:
                pass  # from the step that was restored
            return done

    def _train(self, options: dict[str, Any]) -> Any:
        try:
            with self._position() as folder:
                return self.trainer.train(resume_from_checkpoint=folder, **options)
        except _StepDiffersError as other:
            self._expected = other.step
            return None
        except _NothingLeftError:
            return self._finished()

    def _newest_step(self) -> int:
        """Rank 0's answer, for all. What is damaged shows when it is loaded."""
        rank, world_size = process_group.rank_and_world_size()
        board = MessageBoard(process_group.job_store(), rank=rank, world_size=world_size)
        if rank == 0:
            found: list[int] = []
            with contextlib.suppress(OSError):  # resume() says it
                found = [c.step for c in choose.candidates(self.folder) if c.problem is None]
            board.post("newest", _NewestStep(found[0] if found else 0))
        return board.receive("newest", _NewestStep, purpose="resume").step

    @contextlib.contextmanager
    def _position(self) -> Iterator[str | None]:
        """A folder as the Trainer wants it, until it has read it; None for a fresh start."""
        trainer = self.trainer
        if not self._expected:
            yield None
            return
        self._asked = tempfile.mkdtemp(prefix="holdfast-trainer-")
        # The Trainer would look for weights in that folder.
        trainer._load_from_checkpoint = _nothing_to_load  # noqa: SLF001
        try:
            callbacks = [one for _, one in _with_state(trainer)]
            place = TrainerState(
                global_step=self._expected, stateful_callbacks=[*callbacks, trainer.control]
            )
            place.compute_steps(trainer.args, trainer.args.max_steps)
            place.train_batch_size = trainer.args.train_batch_size
            place.save_to_json(os.path.join(self._asked, "trainer_state.json"))
            yield self._asked
        finally:
            del trainer._load_from_checkpoint  # noqa: SLF001
            shutil.rmtree(self._asked, ignore_errors=True)

    def _finished(self) -> Any:
        trainer = self.trainer
        trainer.control = trainer.callback_handler.on_train_end(
            trainer.args, trainer.state, trainer.control
        )
        trainer.is_in_train = False
        return TrainOutput(trainer.state.global_step, 0.0, {})

    # --- what the Trainer calls ------------------------------------------------------------------

    def on_train_begin(self, args: Any, state: Any, _: Any, **given: Any) -> None:
        shutil.rmtree(self._asked, ignore_errors=True)  # before a kill can leave it behind
        self._opened.close()  # of a start with another batch size, or from another step
        trainer, loader = self.trainer, given.get("train_dataloader")
        saved = State(
            model=trainer.model_wrapped,
            optimizer=inside(trainer.optimizer, "optimizer"),
            scheduler=inside(trainer.lr_scheduler, "scheduler"),
            scaler=trainer.accelerator.scaler,
            data=None if args.ignore_data_skip else _Position(trainer, loader),
            trainer=_Record(trainer),
            **(self._extras or {}),
        )
        made = Checkpoint(self.folder, saved, **self._options)
        self.checkpoint = self._opened.enter_context(made)
        self._counted = True
        step = made.resume(self._accept)
        if step != self._expected:
            raise _StepDiffersError(step)
        if not step:
            return
        args.eval_on_start = False  # it was at step 0, and would count for early stopping again
        self._random_numbers = generators.capture()
        if step >= state.max_steps:
            raise _NothingLeftError

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        if self._random_numbers:
            # The loader has drawn on its way here what the run had drawn before the save.
            generators.restore(self._random_numbers)
            self._random_numbers = {}
        self._count()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self._counted = False

    def on_train_end(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
        if self.checkpoint is None:
            return
        # A training that was stopped before its end resumes before that point and stops there
        # again; and the best model's weights do not belong to the optimizer's last state.
        replaced = args.load_best_model_at_end and state.best_model_checkpoint is not None
        if state.global_step >= state.max_steps and not replaced and not self._counted:
            self._count()
            self.checkpoint.save()
        self._opened.close()

    def _count(self) -> None:
        if not self._counted and self.checkpoint is not None:
            self._counted = True
            self.checkpoint.step()


class _Record:
    """The Trainer's account of itself: its TrainerState, and its callbacks that have a state."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    def state_dict(self) -> dict[str, Any]:
        state = self._trainer.state
        return {
            "state": {name: getattr(state, name) for name in KEPT if hasattr(state, name)},
            "callbacks": [
                [name, callback.state()] for name, callback in _with_state(self._trainer)
            ],
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        for name, value in saved["state"].items():
            setattr(self._trainer.state, name, value)
        left = list(saved["callbacks"])
        for name, callback in _with_state(self._trainer):
            mine = next((one for one in left if one[0] == name), None)
            if mine is not None:
                left.remove(mine)
                for attribute, value in mine[1].get("attributes", {}).items():
                    setattr(callback, attribute, value)


def _with_state(trainer: Any) -> list[tuple[str, Any]]:
    every = trainer.callback_handler.callbacks
    return [(type(one).__name__, one) for one in every if isinstance(one, ExportableState)]


class _Position:
    """The Trainer finds its place by the step; that holds for the same batches only."""

    data_scope = "per-rank"

    def __init__(self, trainer: Any, loader: Any) -> None:
        args = trainer.args
        try:
            batches = len(loader)
        except TypeError:
            batches = 0
        self._same = {
            "batches of a rank in an epoch": batches,
            "batch size of a rank": args.train_batch_size,
            "gradient_accumulation_steps": args.gradient_accumulation_steps,
        }

    def state_dict(self) -> dict[str, Any]:
        return dict(self._same)

    def load_state_dict(self, saved: dict[str, Any], *, accept_change: bool = False) -> None:
        differ = [
            f"{name} was {saved.get(name)} and is {value}"
            for name, value in self._same.items()
            if saved.get(name) != value
        ]
        if differ and not accept_change:
            raise ResumeRefused(
                f"data position lost: {', '.join(differ)}; samples would be skipped or seen twice",
                slugs=["data-position-lost"],
                hint="start with the same data and batch sizes; or set HOLDFAST_ACCEPT=data to "
                "continue at the same step of the new ones",
            )


def _nothing_to_load(*_: Any, **__: Any) -> None:
    """The weights are restored in `on_train_begin`."""
