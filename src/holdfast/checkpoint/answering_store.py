"""The job's store, asked from a thread of its own: a call without an answer blocks no rank.

torch's stores ignore their timeout where the server's machine freezes or its packets are dropped: a
call may block for minutes, and the training with it, which needs no store after its start.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, Protocol

from holdfast.errors import EnvironmentFailure

ANSWER_SECONDS = 20.0
"""for one call, which takes a millisecond as a rule: after so long the store is in trouble"""


class StoreTroubleError(EnvironmentFailure):
    """The store failed, or did not answer in time."""


class TorchStore(Protocol):
    """What we use of torch's stores."""

    def set(self, key: str, value: str, /) -> None: ...
    def get(self, key: str, /) -> bytes: ...
    def add(self, key: str, amount: int, /) -> int: ...
    def check(self, keys: list[str], /) -> bool: ...
    def delete_key(self, key: str, /) -> bool: ...


class _Question:
    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self.done = threading.Event()
        self.answer: Any = None
        self.problem: Exception | None = None

    def ask(self) -> None:
        try:
            self.answer = self._call()
        except Exception as problem:  # noqa: BLE001 - raised where it was asked
            self.problem = problem
        self.done.set()


class AnsweringStore:
    """A store whose every call ends in time, by an answer or a StoreTroubleError.

    After a call without an answer all others fail at once, until that one has returned. What is
    done `later` is done in its turn, by the thread; the caller does not wait for it.
    """

    def __init__(self, store: TorchStore, seconds: float = ANSWER_SECONDS) -> None:
        self._store, self._seconds = store, seconds
        self._lock = threading.Lock()
        self._questions: queue.SimpleQueue[_Question | None] = queue.SimpleQueue()
        self._last: _Question | None = None
        self._is_closed = False
        threading.Thread(target=self._work, name="holdfast-store", daemon=True).start()

    def set(self, key: str, value: str, /) -> None:
        self._ask(lambda: self._store.set(key, value))

    def get(self, key: str, /) -> bytes:
        found: bytes = self._ask(lambda: self._store.get(key))
        return found

    def add(self, key: str, amount: int, /) -> int:
        return int(self._ask(lambda: self._store.add(key, amount)))

    def check(self, keys: list[str], /) -> bool:
        return bool(self._ask(lambda: self._store.check(keys)))

    def set_later(self, key: str, value: str, /) -> None:
        self._questions.put(_Question(lambda: self._store.set(key, value)))

    def add_later(self, key: str, amount: int, /) -> None:
        self._questions.put(_Question(lambda: self._store.add(key, amount)))

    def delete_later(self, keys: list[str], /) -> None:
        self._questions.put(_Question(lambda: [self._store.delete_key(key) for key in keys]))

    def close(self, *, flush: bool) -> None:
        """The thread ends; later calls fail."""
        try:
            if flush:
                self._ask(lambda: None)
        finally:
            self._is_closed = True
            self._questions.put(None)

    def _ask(self, call: Callable[[], Any]) -> Any:
        with self._lock:  # of two threads one asks after the other
            if self._is_closed:
                raise StoreTroubleError("the checkpoint is closed")
            if self._last is not None and not self._last.done.is_set():
                raise StoreTroubleError("the job's store still does not answer")
            self._last = question = _Question(call)
            self._questions.put(question)
            if not question.done.wait(self._seconds):
                raise StoreTroubleError(f"the job's store has not answered for {self._seconds:g} s")
        if isinstance(question.problem, RuntimeError | OSError):
            first = str(question.problem).strip().partition("\n")[0]
            raise StoreTroubleError(f"the job's store failed: {first}") from question.problem
        if question.problem is not None:
            raise question.problem
        return question.answer

    def _work(self) -> None:
        while (question := self._questions.get()) is not None:
            question.ask()
