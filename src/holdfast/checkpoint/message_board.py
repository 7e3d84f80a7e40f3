"""What ranks tell each other about saves: rank 0 announces, the others request, through the store.

    announcement/N        rank 0: what all ranks do at sync point N (save_schedule.py)
    requests              any rank to rank 0: a save is wanted, or SIGTERM was received; a number
    started/R             rank R has called ckpt.step()
    read/B                how many ranks have read all announcements of block B, which can then go
    NAME                  anything else that is posted once, at the start or the end

Only strings, and only rank 0 decides; a rank that has to wait says so on its heartbeat page.
"""

from __future__ import annotations

import time
from typing import Protocol, TypeVar

import msgspec

from holdfast.checkpoint.save_schedule import Announcement, RequestKind
from holdfast.errors import EnvironmentFailure
from holdfast.rank.phase import waiting_for

BLOCK = 256
"""announcements that are removed together"""
STOP = 1 << 32
"""what a request to stop adds to the number of requests; one to save adds 1"""
POLL_SECONDS = 0.05
PATIENCE = 1800.0
"""seconds, as torch's own default for a group: a job whose rank 0 is gone ends before that"""

T = TypeVar("T")


class KeyValueStore(Protocol):
    """A store as answering_store.py makes it of torch's; what is done `later` needs no answer."""

    def set(self, key: str, value: str, /) -> None: ...
    def get(self, key: str, /) -> bytes: ...
    def add(self, key: str, amount: int, /) -> int: ...
    def check(self, keys: list[str], /) -> bool: ...
    def set_later(self, key: str, value: str, /) -> None: ...
    def add_later(self, key: str, amount: int, /) -> None: ...
    def delete_later(self, keys: list[str], /) -> None: ...
    def close(self, *, flush: bool) -> None: ...


class MemoryStore:
    """The store of a job of one rank, which never waits."""

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

    def set_later(self, key: str, value: str, /) -> None:
        self.set(key, value)

    def add_later(self, key: str, amount: int, /) -> None:
        self.add(key, amount)

    def delete_later(self, keys: list[str], /) -> None:
        for key in keys:
            self.delete_key(key)

    def close(self, *, flush: bool) -> None:
        """There is nothing to wait for."""

    def __len__(self) -> int:
        return len(self._values)


class MessageBoard:
    """One per Checkpoint and rank."""

    def __init__(self, store: KeyValueStore, *, rank: int, world_size: int) -> None:
        self._store = store
        self.rank, self.world_size = rank, world_size
        self._received = 0
        self._cleared = 0

    # --- announcements -------------------------------------------------------------------------

    def announce(self, announcement: Announcement) -> None:
        text = msgspec.json.encode(announcement).decode()
        self._store.set_later(f"announcement/{announcement.number}", text)
        if announcement.number % BLOCK == 0:
            self._clear(announcement.number)

    def announcement(self, number: int, *, patience: float = PATIENCE) -> Announcement:
        """Rank 0's about that sync point; waits for it, which is rare (save_schedule.py)."""
        found = self.receive(f"announcement/{number}", Announcement, patience=patience)
        if number % BLOCK == BLOCK - 1:
            self._store.add_later(f"read/{number // BLOCK}", 1)
        return found

    def _clear(self, number: int) -> None:
        """What all ranks have read: a job of months announces a lot."""
        while (self._cleared + 1) * BLOCK <= number:
            read = f"read/{self._cleared}"
            if self._store.add(read, 0) < self.world_size - 1:
                return  # a rank is far behind
            first = self._cleared * BLOCK
            old = [f"announcement/{number}" for number in range(first, first + BLOCK)]
            self._store.delete_later([*old, read])
            self._cleared += 1

    # --- requests ------------------------------------------------------------------------------

    def request(self, kind: RequestKind) -> None:
        """One call: of two, the second could fail, and rank 0 would wait for it."""
        self._store.add("requests", STOP if kind == "stop" else 1)

    def requests(self) -> set[RequestKind]:
        """Rank 0: what was asked for since the last look."""
        count = self._store.add("requests", 0)
        (stops, saves), (had_stops, had_saves) = divmod(count, STOP), divmod(self._received, STOP)
        self._received = count
        asked: dict[RequestKind, bool] = {"stop": stops > had_stops, "save": saves > had_saves}
        return {kind for kind, is_new in asked.items() if is_new}

    # --- anything else -------------------------------------------------------------------------

    def count(self, name: str, more: int = 1) -> int:
        """How many ranks have counted here so far."""
        return self._store.add(name, more)

    def count_later(self, name: str) -> None:
        """One more, in a while."""
        self._store.add_later(name, 1)

    def mark_later(self, name: str) -> None:
        """`is_posted`, in a while."""
        self._store.set_later(name, "1")

    def post(self, name: str, what: msgspec.Struct) -> None:
        self._store.set(name, msgspec.json.encode(what).decode())

    def is_posted(self, *names: str) -> bool:
        """All of them."""
        return self._store.check(list(names))

    def close(self, *, flush: bool) -> None:
        """`flush`: wait until what is to be done later is done; others may wait for it."""
        self._store.close(flush=flush)

    def remove(self, name: str) -> None:
        """What was posted there, once all whom it was for have received it."""
        self._store.delete_later([name])

    def receive(
        self,
        name: str,
        kind: type[T],
        *,
        sender: int = 0,
        patience: float = PATIENCE,
        purpose: str = "save",
    ) -> T:
        """What rank `sender` posts under that name; waits until it has."""
        if not self._store.check([name]):
            with waiting_for(sender):
                self._wait(name, sender, patience, purpose)
        return msgspec.json.decode(self._store.get(name), type=kind)

    def _wait(self, name: str, sender: int, patience: float, purpose: str) -> None:
        """By polling: a wait inside the store answers no signal, and prints warnings when its time
        is over."""
        until = time.monotonic() + patience
        pause = 0.001
        while not self._store.check([name]):
            if time.monotonic() > until:
                raise EnvironmentFailure(
                    f"rank {self.rank} timed out after {patience:g} s waiting for rank {sender} "
                    f"({purpose})",
                    hint=f"rank {sender} is gone or busy with something else: see its log",
                )
            time.sleep(pause)
            pause = min(2 * pause, POLL_SECONDS)
