"""`holdfast.Sampler`: the same order and the same global batches for any number of ranks.

    sampler = holdfast.Sampler(dataset, global_batch_size=256, micro_batch_size=8, seed=1)
    loader = DataLoader(dataset, batch_sampler=sampler, num_workers=4)
    state = holdfast.State(model=model, optimizer=optimizer, data=sampler)
    …
    for batch in sampler.follow(loader):
        with sampler.sync(model):                 # gradients are exchanged at the last one only
            loss = mean_loss(model(batch)) * sampler.loss_weight
            loss.backward()
        if sampler.is_last_micro_batch:
            optimizer.step(); optimizer.zero_grad(); ckpt.step()

The samples of global batch b are at positions b·G … b·G+G of the epoch's order (epoch.py), which
depends on seed and epoch alone; ranks only divide each of them. So after a restart with any number
of ranks every sample of the epoch is seen exactly once, in batches of the planned size.

A loader with workers asks for batches long before they are trained on. So the data position is
counted where batches come out, in `follow`, and not where they are asked for.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from holdfast.checkpoint import epoch
from holdfast.checkpoint.epoch import BatchShares, EpochCursor, EpochOrder, MicroBatch
from holdfast.checkpoint.gradient_exchange import exchange_only_when
from holdfast.checkpoint.process_group import data_rank
from holdfast.errors import ConfigError, ResumeRefused
from holdfast.rank.print_line import say

Batch = TypeVar("Batch")


class Followed(Iterator[Batch]):
    """The micro-batches of one epoch from the data position on; `len()` counts them for tqdm."""

    def __init__(self, sampler: Sampler, batches: Iterator[Batch]) -> None:
        self._sampler, self._batches = sampler, batches
        self._length: int | None = None

    def __next__(self) -> Batch:
        if self._length is None:
            self._length = len(self)
        return next(self._batches)

    def __len__(self) -> int:
        return self._sampler.micro_batches_left if self._length is None else self._length


class Sampler:
    """A batch sampler for `DataLoader(dataset, batch_sampler=sampler)` that survives restarts.

    Every sample of an epoch is seen exactly once, in global batches of the same size, whatever
    number of ranks the run is restarted with. Iterate with `for batch in sampler.follow(loader):`.

    Args:
        dataset: anything with a length, or the length itself.
        global_batch_size: samples for one optimizer step, over all ranks.
        micro_batch_size: the most samples for one forward pass of one rank.
        seed: of the shuffled order.
        shuffle: False keeps the order of the dataset.
        drop_last: leave out the last global batch of an epoch where it is smaller.
        rank: of this process among those that share the data; give it where some ranks read the
            same samples (tensor parallel). By default that of the job.
        world_size: the number of ranks that share the data; give both or neither.

    Attributes:
        is_last_micro_batch: the current micro-batch completes its global batch: step the optimizer.
        loss_weight: factor for the mean loss of the current micro-batch; with it, the gradient is
            that of the mean over the global batch.
        epoch: the current epoch.
        position: global batches of this epoch that are done.

    Raises:
        ConfigError: a size is below 1, or there is nothing to train on.
    """

    data_scope = "global"
    """the data position holds for any number of ranks (State reads this)"""

    def __init__(
        self,
        dataset: Sized | int,
        *,
        global_batch_size: int,
        micro_batch_size: int,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        self.seed, self.shuffle = seed, shuffle
        rank, world_size = data_rank(rank, world_size)
        self.shares = BatchShares(
            length=_length(dataset),
            global_batch_size=global_batch_size,
            micro_batch_size=micro_batch_size,
            rank=rank,
            world_size=world_size,
            drop_last=drop_last,
        )
        epoch.refuse_impossible(self.shares)
        if rank == 0 and (advice := epoch.advice(self.shares)):
            say(advice)
        self.epoch = 0
        self.position = 0
        """global batches of this epoch that were handed out whole"""
        self.loss_weight = 1.0
        """factor for the mean loss of the micro-batch at hand (Shares.weight)"""
        self.is_last_micro_batch = True
        """the micro-batch at hand is the last one of its global batch: step the optimizer"""
        self.following = False
        """inside a loop over `follow`"""
        self.was_followed = False
        self._lost = self._is_asked = self._asked_by_follow = False
        self._undo_draw: Callable[[], None] | None = None

    # --- what is asked for ---------------------------------------------------------------------

    @property
    def batches(self) -> int:
        """Global batches in an epoch: the optimizer's steps."""
        return self.shares.batches

    def __len__(self) -> int:
        """Micro-batches of this rank in a whole epoch, as `len(loader)` says it."""
        last = self.batches - 1
        return last * len(self.shares.cut(0)) + len(self.shares.cut(last))

    @property
    def micro_batches_left(self) -> int:
        """Of this rank in this epoch, from the data position on."""
        done = self.position * len(self.shares.cut(0))
        return len(self) - done if self.position < self.batches else 0

    def __iter__(self) -> EpochCursor:
        """Samples of one micro-batch after the other, from the place reached so far on."""
        self._lost = not self._asked_by_follow
        cursor = EpochCursor(self.shares, self._order, epoch=self.epoch, batch=self.position)
        cursor.at_first = self._undo_draw
        self._is_asked = self._asked_by_follow
        return cursor

    def _order(self, epoch: int) -> EpochOrder:
        return EpochOrder(self.shares.length, seed=self.seed, epoch=epoch, shuffle=self.shuffle)

    # --- what is trained on --------------------------------------------------------------------

    def follow(self, loader: Iterable[Batch]) -> Followed[Batch]:
        """Iterate the loader to the end of the epoch, and keep track of the data position.

        At its end the next epoch begins. A loop that is left early continues where it was.

        Args:
            loader: made with `batch_sampler=` this sampler; also inside a wrapper such as tqdm.

        Returns:
            An iterator over what the loader gives. Its `len()` is the number of micro-batches of
            this rank that are left in the epoch.

        Raises:
            ConfigError: while iterating, where the loader does not give what the sampler asked for.
        """
        return Followed(self, self._follow(loader))

    def _follow(self, loader: Iterable[Batch]) -> Iterator[Batch]:
        if getattr(loader, "batch_sampler", self) is not self:
            raise ConfigError(
                "sampler.follow(loader): the loader has another batch sampler",
                hint="create it as DataLoader(dataset, batch_sampler=sampler)",
            )
        epoch, first = self.epoch, self.position
        given = self._begin(loader)
        try:
            for batch in range(first, self.batches):
                cut = self.shares.cut(batch)
                for micro in cut:
                    samples = self._next(given, batch)
                    self._at(batch, micro, last=micro is cut[-1])
                    yield samples
                    if self.epoch != epoch:
                        raise ConfigError("the epoch was changed inside the loop over follow()")
        finally:
            self.following = False
        _refuse_more(given)
        self.epoch, self.position = epoch + 1, 0

    def _begin(self, loader: Iterable[Batch]) -> Iterator[Batch]:
        here = self.epoch, self.position
        self._is_asked, self._asked_by_follow = False, True
        try:
            given = _without_a_draw(loader) if self.position else iter(loader)
        finally:
            self._asked_by_follow = False
        # A stateful loader has just loaded our state as it was when it asked ahead.
        self.epoch, self.position = here
        return given

    def _next(self, given: Iterator[Batch], batch: int) -> Batch:
        """A wrapper such as tqdm begins the loader only when it is asked for its first batch."""
        if self._is_asked:
            return _next(given, batch, self.batches)
        self._asked_by_follow = True
        self._undo_draw = _generator_as_it_is() if self.position else None
        try:
            return _next(given, batch, self.batches)
        finally:
            self._asked_by_follow, self._is_asked, self._undo_draw = False, True, None

    def _at(self, batch: int, micro: MicroBatch, *, last: bool) -> None:
        self.following = self.was_followed = True
        self.loss_weight = self.shares.weight(batch, micro)
        self.is_last_micro_batch = last
        # Before it is trained on: a save comes after the optimizer's step, in the loop's body.
        self.position = batch + 1 if last else batch

    def sync(self, model: Any) -> AbstractContextManager[None]:
        """Around forward and backward: exchange gradients with the last micro-batch only.

        Args:
            model: in its DDP or FSDP wrapper; a model without one is left alone.
        """
        return exchange_only_when(model, exchange=self.is_last_micro_batch)

    def set_epoch(self, epoch: int) -> None:
        """Go to the beginning of that epoch; in the current one the data position is kept.

        Args:
            epoch: from 0.
        """
        if epoch != self.epoch:
            self.epoch, self.position = epoch, 0

    # --- the data position, saved and loaded ------------------------------------------------------

    def refuse_if_lost(self) -> None:
        """Raise where the loader was iterated without `follow`."""
        if self._lost:
            raise ResumeRefused(
                "data position unknown: iterate with sampler.follow(loader)",
                hint="write `for batch in sampler.follow(loader):`",
                slugs=["data-position-lost"],
            )

    def state_dict(self) -> dict[str, int | bool]:
        self.refuse_if_lost()
        return {"epoch": self.epoch, "position": self.position, **self._identity()}

    def load_state_dict(self, saved: dict[str, int | bool], *, accept_change: bool = False) -> None:
        """Continue there. `accept_change`: with other data, start its epoch from the beginning."""
        differ = [
            f"{name} was {saved.get(name)} and is {value}"
            for name, value in self._identity().items()
            if saved.get(name) != value
        ]
        if differ and not accept_change:
            raise ResumeRefused(
                f"data position lost: {', '.join(differ)}; samples would be skipped or seen twice",
                slugs=["data-position-lost"],
                hint="start with the same data, seed and global batch size; or call "
                'resume(accept={"data"}) or set HOLDFAST_ACCEPT=data to start the epoch from its '
                "beginning",
            )
        self.epoch = int(saved["epoch"])
        self.position = 0 if differ else int(saved["position"])

    def _identity(self) -> dict[str, int | bool]:
        """What must be the same for a data position to mean the same samples."""
        return {
            "length": self.shares.length,
            "global_batch_size": self.shares.global_batch_size,
            "seed": self.seed,
            "shuffle": self.shuffle,
            "order": epoch.VERSION,
        }


def _next(given: Iterator[Batch], batch: int, batches: int) -> Batch:
    try:
        return next(given)
    except StopIteration:
        raise ConfigError(f"the loader ended in global batch {batch} of {batches}") from None


def _refuse_more(given: Iterator[Any]) -> None:
    """Asked to its end, a loader lets its workers go."""
    for _ in given:
        raise ConfigError("the loader gives more batches than its sampler asked for")


def _length(dataset: Sized | int) -> int:
    try:
        length = dataset if isinstance(dataset, int) else len(dataset)
    except TypeError:
        raise ConfigError(
            f"a {type(dataset).__name__} has no length: there is no order to keep",
            hint="for an iterable dataset use torchdata's StatefulDataLoader in a "
            "holdfast.StatefulLoader",
        ) from None
    if length < 1:
        raise ConfigError(f"dataset must have at least 1 sample, got {length}")
    return length


def _without_a_draw(loader: Iterable[Batch]) -> Iterator[Batch]:
    """A loader that begins draws a seed for its workers from torch's generator. In the middle of an
    epoch that draw was made before the resume: a second one would shift all numbers after it."""
    put_back = _generator_as_it_is()
    given = iter(loader)
    if put_back is not None:
        put_back()
    return given


def _generator_as_it_is() -> Callable[[], None] | None:
    """The same where a wrapper begins the loader: to be put back before its first samples are asked
    for, when it has drawn."""
    if "torch" not in sys.modules:
        return None
    from holdfast.checkpoint import generators  # noqa: PLC0415 - imports torch

    return generators.as_they_are()
