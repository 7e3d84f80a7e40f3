"""Where a loader is in asking for samples, which with workers is ahead of the training.

It says its place and takes it back (`state_dict`), because torchdata's StatefulDataLoader keeps
that of the sampler's iterator: without, it would run through all that was asked for before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from holdfast.checkpoint.order import Order
from holdfast.checkpoint.shares import Shares


class Cursor(Iterator[list[int]]):
    def __init__(
        self, shares: Shares, order: Callable[[int], Order], *, epoch: int, batch: int
    ) -> None:
        self._shares, self._order_of = shares, order
        self._go(epoch, batch, 0)

    def _go(self, epoch: int, batch: int, micro: int) -> None:
        self._epoch, self._batch, self._micro = epoch, batch, micro
        self._order = self._order_of(epoch)

    def __next__(self) -> list[int]:
        if self._batch >= self._shares.batches:
            raise StopIteration
        cut = self._shares.cut(self._batch)
        samples = [self._order[place] for place in cut[self._micro]]
        self._micro += 1
        if self._micro == len(cut):
            self._batch, self._micro = self._batch + 1, 0
        return samples

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self._epoch, "batch": self._batch, "micro": self._micro}

    def load_state_dict(self, saved: dict[str, int]) -> None:
        self._go(saved["epoch"], saved["batch"], saved["micro"])
