"""An epoch: its order, its global batches, and the share of each rank. Pure.

The order is a permutation that follows from (seed, epoch) alone, and takes no memory: a shuffled
list of a billion numbers would take gigabytes on every rank. A keyed Feistel network maps any
position to its sample by itself: positions are written as (left, right) on a board a little larger
than the data, each half is shifted by a scrambled function of the other one, which can be undone
and hence is a permutation, and a result outside the data is mapped again until it is inside ("cycle
walking"; Black and Rogaway, Ciphers with Arbitrary Finite Domains, 2002). Integers only, so that
the order is the same with every version of Python, NumPy and torch. A change to it must raise
VERSION: saved positions would otherwise mean other samples.

DDP and FSDP need the same number of backward passes on every rank. So the number of micro-batches
follows from the largest share, and every rank cuts its own share into as many; sizes differ by one
at most. A rank with fewer samples than micro-batches repeats a sample, which counts nothing. Where
sizes differ, `weight` keeps the gradient exact.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from holdfast.errors import ConfigError


@dataclass(frozen=True)
class MicroBatch:
    """What one rank computes in one pass."""

    places: range
    """within the epoch; never empty"""
    is_repeat: bool = False
    """a sample that is counted elsewhere: here only for the backward pass"""


@dataclass(frozen=True)
class BatchShares:
    """What one rank gets of every global batch of an epoch."""

    length: int
    global_batch_size: int
    micro_batch_size: int
    rank: int
    world_size: int
    drop_last: bool

    @property
    def batches(self) -> int:
        """Global batches in an epoch: the optimizer's steps."""
        whole, rest = divmod(self.length, self.global_batch_size)
        return whole + (1 if rest and not self.drop_last else 0)

    def size(self, batch: int) -> int:
        """Samples in that global batch: fewer than planned in the last one, if any."""
        return min(self.global_batch_size, self.length - batch * self.global_batch_size)

    def cut(self, batch: int) -> list[MicroBatch]:
        """The micro-batches of this rank."""
        size, first = self.size(batch), batch * self.global_batch_size
        start = size * self.rank // self.world_size
        share = size * (self.rank + 1) // self.world_size - start
        count = micro_batches(size, self.world_size, self.micro_batch_size)
        edges = [first + start + share * number // count for number in range(count + 1)]
        last = first + min(start + max(share, 1), size) - 1
        return [
            MicroBatch(range(here, then))
            if then > here
            else MicroBatch(range(min(here, last), min(here, last) + 1), is_repeat=True)
            for here, then in pairwise(edges)
        ]

    def weight(self, batch: int, micro: MicroBatch) -> float:
        """What the mean loss of a micro-batch counts.

        Backward adds up over micro-batches, and DDP and FSDP take the mean over ranks: with this
        factor the result is the mean over the samples of the global batch, whatever their cut.
        """
        if micro.is_repeat:
            return 0.0
        return len(micro.places) * self.world_size / self.size(batch)

    @property
    def repeated(self) -> float:
        """Of all passes of a global batch of the planned size, the part that only repeats."""
        size = self.global_batch_size
        passes = micro_batches(size, self.world_size, self.micro_batch_size)
        shares = [
            size * (rank + 1) // self.world_size - size * rank // self.world_size
            for rank in range(self.world_size)
        ]
        return sum(max(0, passes - share) for share in shares) / (passes * self.world_size)


def micro_batches(batch: int, world_size: int, micro: int) -> int:
    """How many every rank makes of a global batch."""
    largest_share = -(-batch // world_size)
    return -(-largest_share // micro)


def refuse_impossible(asked: BatchShares) -> None:
    """Raise for sizes of which no epoch can be made."""
    size, micro = asked.global_batch_size, asked.micro_batch_size
    for name, number in (("global_batch_size", size), ("micro_batch_size", micro)):
        if number < 1:
            raise ConfigError(f"{name} must be > 0, got {number}")
    if not asked.batches:
        raise ConfigError(
            f"{asked.length} samples are less than global_batch_size={size}: "
            "with drop_last=True there is nothing to train on"
        )


def advice(asked: BatchShares) -> str:
    """'' unless a good part of the work is repeated; then what to do."""
    if asked.repeated < WORTH_SAYING:
        return ""
    size, ranks = asked.global_batch_size, asked.world_size
    below = size // ranks * ranks
    near = " or ".join(str(number) for number in (below, below + ranks) if number)
    return (
        f"global_batch_size={size} on {ranks} ranks: {asked.repeated:.0%} of all passes repeat a "
        f"sample with weight 0, because ranks have different shares; {near} would need none"
    )


WORTH_SAYING = 0.05
"""part of all passes that only repeat"""
VERSION = 1
_ROUNDS = 4
_MASK = (1 << 64) - 1


class EpochOrder:
    """`order[position]` is the sample at that position of the epoch."""

    def __init__(self, length: int, *, seed: int, epoch: int, shuffle: bool) -> None:
        self._length, self._shuffle = length, shuffle
        # Nearly square and hardly larger than the data, so that few results fall beside it.
        self._tall = math.isqrt(length - 1) + 1
        self._wide = -(-length // self._tall)
        text = f"holdfast/order/{VERSION}/{seed}/{epoch}".encode()
        self._keys = [_key(text, number) for number in range(_ROUNDS)]

    def __getitem__(self, place: int) -> int:
        if not 0 <= place < self._length:
            raise IndexError(place)
        if not self._shuffle:
            return place
        tall, wide = self._tall, self._wide
        while True:
            left, right = divmod(place, wide)
            # In line, not in a function: this runs for every sample (2 µs).
            for add, times, then_add, then_times in self._keys:
                mixed = (right + add) * times & _MASK
                left = (left + (mixed ^ mixed >> 29)) % tall
                mixed = (left + then_add) * then_times & _MASK
                right = (right + (mixed ^ mixed >> 29)) % wide
            place = left * wide + right
            if place < self._length:
                return place


def _key(text: bytes, number: int) -> tuple[int, int, int, int]:
    """Of one round: what each half is moved by before it is multiplied, and the odd multipliers."""
    raw = hashlib.blake2b(text, digest_size=32, salt=bytes([number])).digest()
    one, two, three, four = (int.from_bytes(raw[at : at + 8], "little") for at in (0, 8, 16, 24))
    return one, two | 1, three, four | 1


class EpochCursor(Iterator[list[int]]):
    """The samples of one micro-batch of this rank after the other."""

    def __init__(
        self, shares: BatchShares, order: Callable[[int], EpochOrder], *, epoch: int, batch: int
    ) -> None:
        self._shares, self._order_of = shares, order
        self.at_first: Callable[[], None] | None = None
        """called before the first sample is given"""
        self._go(epoch, batch, 0)

    def _go(self, epoch: int, batch: int, micro: int) -> None:
        self._epoch, self._batch, self._micro = epoch, batch, micro
        self._order = self._order_of(epoch)

    def __next__(self) -> list[int]:
        if self.at_first is not None:
            self.at_first()
            self.at_first = None
        if self._batch >= self._shares.batches:
            raise StopIteration
        cut = self._shares.cut(self._batch)
        samples = [self._order[place] for place in cut[self._micro].places]
        self._micro += 1
        if self._micro == len(cut):
            self._batch, self._micro = self._batch + 1, 0
        return samples

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self._epoch, "batch": self._batch, "micro": self._micro}

    def load_state_dict(self, saved: dict[str, int]) -> None:
        self._go(saved["epoch"], saved["batch"], saved["micro"])
