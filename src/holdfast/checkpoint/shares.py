"""A global batch, cut for ranks and micro-batches. Pure.

FSDP needs the same number of backward passes on every rank, and so does DDP. So the number of
micro-batches follows from the largest share, and every rank cuts its own share into so many; sizes
differ by one at most. Where sizes differ, `weight` keeps the gradient exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from holdfast.errors import ConfigError


@dataclass(frozen=True)
class Shares:
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

    def cut(self, batch: int) -> list[range]:
        """The places within the epoch that are in each micro-batch of this rank."""
        size, first = self.size(batch), batch * self.global_batch_size
        start = size * self.rank // self.world_size
        share = size * (self.rank + 1) // self.world_size - start
        count = micro_batches(size, self.world_size, self.micro_batch_size)
        edges = [first + start + share * number // count for number in range(count + 1)]
        return [range(*pair) for pair in pairwise(edges)]

    def weight(self, batch: int, micro: range) -> float:
        """What the mean loss of a micro-batch counts.

        Backward adds up over micro-batches, and DDP and FSDP take the mean over ranks: with this
        factor the result is the mean over the samples of the global batch, whatever their cut.
        """
        return len(micro) * self.world_size / self.size(batch)


def micro_batches(batch: int, world_size: int, micro: int) -> int:
    """How many every rank makes of a global batch."""
    largest_share = -(-batch // world_size)
    return -(-largest_share // micro)


def fits(batch: int, world_size: int, micro: int) -> bool:
    """Has every rank at least one sample for each of its micro-batches?"""
    return batch // world_size >= micro_batches(batch, world_size, micro)


def refuse_unfit(asked: Shares) -> None:
    """Raise for sizes that cannot be cut, and say which can."""
    size, world_size, micro = asked.global_batch_size, asked.world_size, asked.micro_batch_size
    for name, number in (("global_batch_size", size), ("micro_batch_size", micro)):
        if number < 1:
            raise ConfigError(f"{name} must be > 0, got {number}")
    if not fits(size, world_size, micro):
        raise ConfigError(
            f"global_batch_size={size} {_why(size, world_size, micro)}",
            hint=f"possible here: {_possible(size, world_size, micro)}",
        )
    if not asked.batches:
        raise ConfigError(
            f"{asked.length} samples are less than global_batch_size={size}: "
            "with drop_last=True there is nothing to train on"
        )
    rest = asked.size(asked.batches - 1)
    if not fits(rest, world_size, micro):
        raise ConfigError(
            f"the last global batch of an epoch has {rest} of {size} samples, and that "
            f"{_why(rest, world_size, micro)}",
            hint="drop_last=True leaves so many out of every epoch, others each time; or: "
            f"{_possible_for_all(asked)}",
        )


def _why(batch: int, world_size: int, micro: int) -> str:
    if batch < world_size:
        return f"does not give each of {world_size} ranks a sample"
    count = micro_batches(batch, world_size, micro)
    small, large = batch // world_size, -(-batch // world_size)
    return (
        f"gives some of {world_size} ranks {large} samples and some {small}: with micro_batch_size="
        f"{micro} the former need {count} micro-batches, for which {small} are too few"
    )


def _possible(batch: int, world_size: int, micro: int) -> str:
    below = batch // world_size * world_size
    near = [f"global_batch_size={size}" for size in (below, below + world_size) if size]
    larger = next((m for m in range(micro + 1, batch + 1) if fits(batch, world_size, m)), 0)
    return ", ".join(near + ([f"micro_batch_size={larger}"] if larger else []))


def _possible_for_all(asked: Shares) -> str:
    """The nearest planned sizes that also leave a last batch that can be cut."""
    world_size, micro = asked.world_size, asked.micro_batch_size

    def works(size: int) -> bool:
        rest = asked.length % size or size
        return fits(size, world_size, micro) and fits(rest, world_size, micro)

    planned = asked.global_batch_size
    below = next((size for size in range(planned - 1, 0, -1) if works(size)), 0)
    above = next((size for size in range(planned + 1, 2 * planned) if works(size)), 0)
    found = [f"global_batch_size={size}" for size in (below, above) if size]
    return ", ".join(found) or "fewer ranks"
