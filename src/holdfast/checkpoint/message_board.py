"""The board on which rank 0 announces and the others call: the job's store, or memory of our own.

    word/N    rank 0's word about point N (save_schedule.py)
    calls, call/N    what any rank has to tell rank 0: a wish to save, or a signal
    read/B    how many ranks have read all words of block B, which then can go
    NAME      anything else said once, at the start or the end

Only strings, and only rank 0 decides; a rank that must wait says so on its page.
"""

from __future__ import annotations

import time
from typing import Literal, Protocol, TypeVar

import msgspec

from holdfast.checkpoint.save_schedule import Word
from holdfast.errors import EnvironmentFailure
from holdfast.rank.phase import waiting_for

BLOCK = 256
"""words that are cleared away together"""
LOOK_AGAIN = 0.05
PATIENCE = 1800.0
"""seconds, as torch's own default for a group: a job whose rank 0 is gone ends before that"""

T = TypeVar("T")


class Store(Protocol):
    """What we use of torch's stores."""

    def set(self, key: str, value: str, /) -> None: ...
    def get(self, key: str, /) -> bytes: ...
    def add(self, key: str, amount: int, /) -> int: ...
    def check(self, keys: list[str], /) -> bool: ...
    def delete_key(self, key: str, /) -> bool: ...


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank tells rank 0."""

    rank: int
    kind: Literal["save", "stop"]


class Memory:
    """The store of a job of one, where nobody is waited for."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}

    def set(self, key: str, value: str, /) -> None:
        self._values[key] = value.encode()

    def get(self, key: str, /) -> bytes:
        return self._values[key]

    def add(self, key: str, amount: int, /) -> int:
        total = int(self._values.get(key, b"0")) + amount
        self._values[key] = str(total).encode()
        return total

    def check(self, keys: list[str], /) -> bool:
        return all(key in self._values for key in keys)

    def delete_key(self, key: str, /) -> bool:
        return self._values.pop(key, None) is not None

    def __len__(self) -> int:
        return len(self._values)


class Board:
    """One per Checkpoint and rank."""

    def __init__(self, store: Store, *, rank: int, world_size: int) -> None:
        self._store = store
        self.rank, self.world_size = rank, world_size
        self._heard = 0
        self._cleared = 0

    # --- words ---------------------------------------------------------------------------------

    def publish(self, word: Word) -> None:
        self._store.set(f"word/{word.number}", msgspec.json.encode(word).decode())
        if word.number % BLOCK == 0:
            self._clear(word.number)

    def read(self, number: int) -> Word:
        """Rank 0's word about that point; waits for it, which is rare (save_schedule.py)."""
        word = self.hear(f"word/{number}", Word)
        if number % BLOCK == BLOCK - 1:
            self._store.add(f"read/{number // BLOCK}", 1)
        return word

    def _clear(self, number: int) -> None:
        """Words that all have read: a job of months says many."""
        while (self._cleared + 1) * BLOCK <= number:
            read = f"read/{self._cleared}"
            if self._store.add(read, 0) < self.world_size - 1:
                return  # somebody is far behind
            first = self._cleared * BLOCK
            for old in range(first, first + BLOCK):
                self._store.delete_key(f"word/{old}")
            self._store.delete_key(read)
            self._cleared += 1

    # --- calls ---------------------------------------------------------------------------------

    def call(self, call: Call) -> None:
        number = self._store.add("calls", 1)
        self._store.set(f"call/{number}", msgspec.json.encode(call).decode())

    def calls(self) -> list[Call]:
        """Rank 0: those it has not heard yet. One question to the store when there are none."""
        count = self._store.add("calls", 0)
        found = []
        while self._heard < count:
            self._heard += 1
            key = f"call/{self._heard}"
            found.append(self.hear(key, Call))
            self._store.delete_key(key)
        return found

    # --- anything else -------------------------------------------------------------------------

    def count(self, name: str, more: int = 1) -> int:
        """How many have counted here so far."""
        return self._store.add(name, more)

    def say(self, name: str, what: msgspec.Struct) -> None:
        self._store.set(name, msgspec.json.encode(what).decode())

    def forget(self, name: str) -> None:
        """What was said there and heard by all whom it was for."""
        self._store.delete_key(name)

    def hear(self, name: str, kind: type[T], *, of: int = 0, patience: float = PATIENCE) -> T:
        """What rank `of` says under that name; waits until it has."""
        if not self._store.check([name]):
            with waiting_for(of):
                self._wait(name, of, patience)
        return msgspec.json.decode(self._store.get(name), type=kind)

    def _wait(self, name: str, of: int, patience: float) -> None:
        """By asking again and again: a wait inside the store answers no signal, and prints
        warnings when its time is over."""
        until = time.monotonic() + patience
        pause = 0.001
        while not self._store.check([name]):
            if time.monotonic() > until:
                raise EnvironmentFailure(
                    f"rank {self.rank} waited in vain for what rank {of} was to say ({name})",
                    hint="that rank is gone, or does something else: its own log says what",
                )
            time.sleep(pause)
            pause = min(2 * pause, LOOK_AGAIN)
