"""The order of an epoch: a permutation that follows from (seed, epoch) alone. Pure, no memory.

A shuffled list of a billion numbers takes gigabytes on every rank. A keyed Feistel network takes
any place to its sample by itself: places are written as (left, right) on a board a little larger
than the data, each half is shifted by a scrambled function of the other one, which can be undone
and hence is a permutation, and a result beside the data is sent through again until it falls inside
("cycle walking"; Black and Rogaway, Ciphers with Arbitrary Finite Domains, 2002).

Integers only, so that the order is the same with every version of Python, NumPy and torch. A
change to anything here must raise VERSION: saved places would otherwise mean other samples.
"""

from __future__ import annotations

import hashlib
import math

VERSION = 1
_ROUNDS = 4
_MASK = (1 << 64) - 1


class Order:
    """`order[place]` is the sample at that place of the epoch."""

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
            # In line, not in a function of its own: this runs for every sample (2 µs).
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
