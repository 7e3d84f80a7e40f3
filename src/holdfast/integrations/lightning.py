"""Lightning's Trainer, resumed in the middle of an epoch.

    sampler = holdfast.Sampler(dataset, global_batch_size=256, micro_batch_size=8)
    loader = FollowedLoader(DataLoader(dataset, batch_sampler=sampler))
    trainer = Trainer(callbacks=[CheckpointCallback("ckpts", every="5m")],
                      use_distributed_sampler=False, …)
    trainer.fit(module, loader)

A step is counted at the end of its batch and saved at the start of the next batch: the validation
that is due at that step has happened by then. The next batch has left the loader, too; so the
loader's position is noted at the end of each step.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from holdfast.checkpoint import generators
from holdfast.checkpoint.checkpoint import Checkpoint
from holdfast.checkpoint.sampler import Sampler
from holdfast.checkpoint.state import State
from holdfast.errors import ConfigError
from holdfast.integrations.framework import checkpoint_options, require

require("lightning", "2.5", "2.6")

from lightning.pytorch import Callback  # noqa: E402 - the sentence above comes first


class FollowedLoader:
    """A train loader whose data position is saved: that of its `holdfast.Sampler`.

    Args:
        loader: a DataLoader that was made with `batch_sampler=` a `holdfast.Sampler`.

    Raises:
        ConfigError: the loader has another batch sampler.
    """

    def __init__(self, loader: Any) -> None:
        sampler = getattr(loader, "batch_sampler", None)
        if not isinstance(sampler, Sampler):
            raise ConfigError(
                f"FollowedLoader: the loader's batch sampler is a {type(sampler).__name__}",
                hint="create it as DataLoader(dataset, batch_sampler=holdfast.Sampler(…))",
            )
        self.loader, self.sampler = loader, sampler  # Lightning calls sampler.set_epoch

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[Any]:
        return self.sampler.follow(self.loader)

    def state_dict(self) -> dict[str, Any]:
        return self.sampler.state_dict()

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        accept = bool(saved.pop("accept_change", False))
        self.sampler.load_state_dict(saved, accept_change=accept)


class CheckpointCallback(Callback):  # type: ignore[misc]
    """Saves what a Lightning Trainer trains, and resumes it when `fit` starts.

    Model, optimizers, schedulers, the gradient scaler of `16-mixed`, random numbers, the state of
    Lightning's loops and callbacks, and the position of a `FollowedLoader` or any train loader with
    a `state_dict()` are saved. Lightning's own ModelCheckpoint works beside.

    Args:
        folder: on a file system that all machines of the job share.
        extras: what else to save, by name, as in `holdfast.State`.
        accept: changes since the save that are intended, as for `holdfast.Checkpoint.resume`.
        **options: as for `holdfast.Checkpoint`: every, every_steps, keep, keep_every_steps, config.

    Raises:
        ConfigError: an argument makes no sense.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        extras: dict[str, Any] | None = None,
        accept: Any = (),
        **options: Any,
    ) -> None:
        self.folder = os.fspath(folder)
        self.checkpoint: Checkpoint | None = None
        self._options, self._extras, self._accept = checkpoint_options(options), extras, accept
        self._steps = 0
        self._counted = True
        self._random_numbers: dict[str, Any] = {}

    # --- what Lightning calls --------------------------------------------------------------------

    def on_fit_start(self, trainer: Any, *_: Any) -> None:
        self._loops = _Loops(trainer)
        self._loaders = _LoaderPositions(trainer)
        state = State(
            model=trainer.model,  # in its DDP wrapper, whose order of sums is kept, too
            scaler=getattr(trainer.precision_plugin, "scaler", None),
            data=self._loaders,
            loops=self._loops,
            callbacks=_Callbacks(trainer, self),
            **_numbered("optimizer", trainer.optimizers),
            **_numbered("scheduler", [one.scheduler for one in trainer.lr_scheduler_configs]),
            **(self._extras or {}),
        )
        self.checkpoint = Checkpoint(self.folder, state, **self._options)
        self._counted, self._random_numbers = True, {}
        if self.checkpoint.resume(self._accept):
            self._random_numbers = generators.capture()
        self._steps = trainer.global_step

    def on_train_batch_start(self, *_: Any, **__: Any) -> None:
        if self._random_numbers:
            # The loader has drawn on its way here what the run had drawn before the save.
            generators.restore(self._random_numbers)
            self._random_numbers = {}
            self._loops.after_restart()
        self._count()

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        if trainer.global_step != self._steps:  # not while gradients are accumulated
            self._steps = trainer.global_step
            self._counted = False
            self._loaders.note()

    def on_train_end(self, trainer: Any, *_: Any) -> None:
        # A training that was stopped before its end resumes before that point and stops there
        # again.
        if self.checkpoint is not None and not trainer.should_stop and not self._counted:
            self._loops.ended = True
            self._count()
            self.checkpoint.save()

    def on_exception(self, _: Any, __: Any, exception: BaseException) -> None:
        if self.checkpoint is not None:
            self.checkpoint.__exit__(type(exception), exception, None)

    def teardown(self, *_: Any, **__: Any) -> None:
        if self.checkpoint is not None:
            self.checkpoint.close()

    def _count(self) -> None:
        if not self._counted and self.checkpoint is not None:
            self._counted = True
            self.checkpoint.step()


def _numbered(name: str, things: list[Any]) -> dict[str, Any]:
    """The first under its plain name, as State knows it."""
    return {f"{name}_{number}" if number else name: one for number, one in enumerate(things)}


class _Loops:
    """The progress of `trainer.fit`, as it is between two batches."""

    def __init__(self, trainer: Any) -> None:
        self._fit_loop = trainer.fit_loop
        self.ended = False
        self._stepped: int | None = None

    def state_dict(self) -> dict[str, Any]:
        saved: dict[str, Any] = self._fit_loop.state_dict()
        saved["state_dict"].pop("combined_loader", None)  # of this rank alone: see _LoaderPositions
        epoch = self._fit_loop.epoch_loop
        batches = epoch.batch_progress.current.ready
        if not self.ended or batches < epoch.trainer.num_training_batches:
            # That of the batch that was fetched and is not trained on yet.
            saved["epoch_loop.batch_progress"]["is_last_batch"] = False
            if self.ended:  # by max_steps, in the middle of an epoch, which Lightning calls done
                _take_back_the_epoch(saved["epoch_progress"])
        return saved

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        self._stepped = saved["epoch_loop.state_dict"].get("_batches_that_stepped")
        self._fit_loop.load_state_dict(saved)

    def after_restart(self) -> None:
        """Lightning counts one more, for it saves before it counts; we save after."""
        if self._stepped is not None:
            self._fit_loop.epoch_loop._batches_that_stepped = self._stepped  # noqa: SLF001


def _take_back_the_epoch(progress: dict[str, Any]) -> None:
    for scope in ("total", "current"):
        for stage in ("processed", "completed"):
            progress[scope][stage] = min(progress[scope][stage], progress[scope]["ready"] - 1)


class _LoaderPositions:
    """Where the train loaders were when the last step ended; the next batch has left them since."""

    def __init__(self, trainer: Any) -> None:
        self._fit_loop = trainer.fit_loop
        self._noted: list[Any] = []

    @property
    def data_scope(self) -> str:
        """State reads this: does the position hold for any number of ranks, or is there none?"""
        loaders = self._train_loaders()
        if loaders and all(isinstance(one, FollowedLoader) for one in loaders):
            return "global"
        return "per-rank" if loaders and all(map(_has_position, loaders)) else "unknown"

    def note(self) -> None:
        self._noted = [one.state_dict() for one in self._train_loaders() if _has_position(one)]

    def state_dict(self) -> dict[str, Any]:
        return {"loaders": self._noted}

    def load_state_dict(self, saved: dict[str, Any], *, accept_change: bool = False) -> None:
        self._noted = saved["loaders"]
        # Lightning gives them to the loaders once it has them, after this hook.
        self._fit_loop._combined_loader_states_to_load = [  # noqa: SLF001
            one | {"accept_change": True} if accept_change and "global_batch_size" in one else one
            for one in self._noted
        ]

    def _train_loaders(self) -> list[Any]:
        combined = self._fit_loop._combined_loader  # noqa: SLF001
        return [] if combined is None else list(combined.flattened)


def _has_position(loader: Any) -> bool:
    return hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")


class _Callbacks:
    """The callbacks that have a state: early stopping, for example."""

    def __init__(self, trainer: Any, own: Callback) -> None:
        self._trainer, self._own = trainer, own

    def state_dict(self) -> dict[str, Any]:
        return {name: state for name, one in self._named() if (state := one.state_dict())}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        for name, one in self._named():
            if name in saved:
                one.load_state_dict(saved[name])

    def _named(self) -> list[tuple[str, Any]]:
        return [(one.state_key, one) for one in self._trainer.callbacks if one is not self._own]
