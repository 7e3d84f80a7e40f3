"""A loop of your own around accelerate's Accelerator, resumed in the middle of an epoch.

    model, optimizer, scheduler, loader = accelerator.prepare(model, optimizer, scheduler, loader)
    ckpt = AcceleratorCheckpoint("ckpts", accelerator, model=model, optimizer=optimizer,
                                 scheduler=scheduler, loader=loader, every="5m")
    ckpt.resume()
    for epoch in range(ckpt.epoch, EPOCHS):
        for batch in ckpt.batches(epoch):       # from the batch on that is due
            with accelerator.accumulate(model):
                accelerator.backward(loss(model, batch))
                optimizer.step(); scheduler.step(); optimizer.zero_grad()
            ckpt.step()                         # counts where gradients were exchanged
    ckpt.save()

A prepared loader shuffles by generators that have moved on when a checkpoint is saved. So their
state at the beginning of the epoch is saved as well: the resumed epoch has the same order.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from holdfast.checkpoint import generators
from holdfast.checkpoint.checkpoint import Checkpoint
from holdfast.checkpoint.state import State
from holdfast.errors import ConfigError, ResumeRefused
from holdfast.integrations.framework import checkpoint_options, require

require("accelerate", "1.0", "1.15")

import accelerate  # noqa: E402 - the sentence above comes first


class AcceleratorCheckpoint(Checkpoint):
    """A `holdfast.Checkpoint` of what `accelerator.prepare` returned.

    Args:
        folder: on a file system that all machines of the job share.
        accelerator: with its process group; its gradient scaler is saved, too.
        model: as prepared, in its DDP or FSDP2 wrapper.
        optimizer: as prepared.
        scheduler: as prepared.
        loader: as prepared; iterate it with `batches(epoch)`.
        extras: what else to save, by name, as in `holdfast.State`.
        **options: as for `holdfast.Checkpoint`: every, every_steps, keep, keep_every_steps, config.

    Raises:
        ConfigError: an argument makes no sense, or the accelerator's backend is not supported.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        accelerator: Any,
        *,
        model: Any,
        optimizer: Any,
        scheduler: Any = None,
        loader: Any = None,
        extras: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        refuse_backend(accelerator)
        self._accelerator, self._loader = accelerator, loader
        self._place = None if loader is None else LoaderPosition(loader)
        state = State(
            model=model,
            optimizer=inside(optimizer, "optimizer"),
            scheduler=inside(scheduler, "scheduler"),
            scaler=accelerator.scaler,
            data=self._place,
            **(extras or {}),
        )
        super().__init__(folder, state, **checkpoint_options(options))

    def __enter__(self) -> AcceleratorCheckpoint:
        return self

    @property
    def epoch(self) -> int:
        """The epoch to continue with. If its batches are all done, `batches` gives none, and what
        comes after them, an evaluation for example, happens."""
        return self._place.epoch if self._place else 0

    def batches(self, epoch: int) -> Iterator[Any]:
        """The loader's batches of that epoch; after a resume, those that were not trained on yet.

        Args:
            epoch: from 0. The position is kept in the current one, and is 0 in any other.
        """
        if self._place is None:
            raise ConfigError("batches() needs AcceleratorCheckpoint(…, loader=loader)")
        self.state.epoch = epoch
        return self._place.follow(epoch)

    def step(self) -> None:
        """Call it after every batch: counts an optimizer step where there was one, saves when due.

        With gradient accumulation that is where `accelerator.sync_gradients` is true.
        """
        if self._accelerator.sync_gradients:
            super().step()


class LoaderPosition:
    """Which epoch, and how many batches of it this rank has been given."""

    data_scope = "per-rank"

    def __init__(self, loader: Any) -> None:
        for option, used in (
            ("use_stateful_dataloader", getattr(loader, "use_stateful_dataloader", False)),
            ("dispatch_batches", type(loader).__name__ == "DataLoaderDispatcher"),
        ):
            if used:  # accelerate's skip_first_batches leads to other batches there
                raise ConfigError(
                    f"loader: with {option}=True accelerate cannot return to a position",
                    hint=f"prepare with DataLoaderConfiguration({option}=False)",
                )
        self.epoch = self.done = 0
        self._loader = loader
        self._start: dict[str, Any] = {}

    def follow(self, epoch: int) -> Iterator[Any]:
        if epoch != self.epoch:
            self.epoch, self.done = epoch, 0
        if hasattr(self._loader, "set_epoch"):
            self._loader.set_epoch(epoch)
        if self.done and self.done == self._length():
            return
        for batch in self._from_here():
            self.done += 1
            yield batch

    def _from_here(self) -> Iterator[Any]:
        if not self.done:
            self._start = self._all_generators()
            yield from self._loader
            return
        now = generators.capture()
        self._rewind(self._start)
        for batch in accelerate.skip_first_batches(self._loader, self.done):
            if now:  # what the loader drew on its way here had been drawn before the save
                generators.restore(now)
                now = {}
            yield batch

    def state_dict(self) -> dict[str, Any]:
        own = self._own_generator()
        return {
            "epoch": self.epoch,
            "done": self.done,
            "length": self._length(),
            "start": self._start,
            "sampler": None if own is None else generators.capture_one(own),
        }

    def load_state_dict(self, saved: dict[str, Any], *, accept_change: bool = False) -> None:
        """Continue there. `accept_change`: with other data, start its epoch from the beginning."""
        same = saved["length"] == self._length()
        if not same and not accept_change:
            raise ResumeRefused(
                f"data position lost: the loader had {saved['length']} batches and has "
                f"{self._length()}; samples would be skipped or seen twice",
                slugs=["data-position-lost"],
                hint="start with the same data, batch size and number of ranks; or set "
                "HOLDFAST_ACCEPT=data to start the epoch from its beginning",
            )
        self.epoch, self._start = saved["epoch"], saved["start"]
        self.done = saved["done"] if same else 0
        if (own := self._own_generator()) is not None and saved["sampler"] is not None:
            generators.restore_one(own, saved["sampler"])

    def _length(self) -> int | None:
        try:
            return len(self._loader)
        except TypeError:
            return None

    def _own_generator(self) -> Any:
        """That of a sampler which accelerate made or synchronises; the order comes from it."""
        return getattr(self._loader, "synchronized_generator", None)

    def _all_generators(self) -> dict[str, Any]:
        own = self._own_generator()
        return {
            "ranks": generators.capture(),
            "sampler": None if own is None else generators.capture_one(own),
        }

    def _rewind(self, start: dict[str, Any]) -> None:
        generators.restore(start["ranks"])
        if (own := self._own_generator()) is not None and start["sampler"] is not None:
            generators.restore_one(own, start["sampler"])


def inside(wrapped: Any, name: str) -> Any:
    """The torch object that accelerate's AcceleratedOptimizer or AcceleratedScheduler wraps."""
    kind = type(wrapped).__name__
    return getattr(wrapped, name) if kind.startswith("Accelerated") else wrapped


def refuse_backend(accelerator: Any) -> None:
    """Backends that keep the state to themselves."""
    kind = str(getattr(accelerator.distributed_type, "value", accelerator.distributed_type))
    if kind in ("DEEPSPEED", "MEGATRON_LM"):
        raise ConfigError(
            f"accelerate's backend {kind} keeps model and optimizer in a form of its own",
            hint="use DDP or FSDP2 (FullyShardedDataParallelPlugin(fsdp_version=2)), or that "
            "backend's own checkpoints",
        )
