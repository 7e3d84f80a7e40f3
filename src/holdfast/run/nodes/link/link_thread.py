"""The thread that talks to other nodes: an asyncio loop of its own, and news for the agent.

It is a thread because the agent's own may be busy for half a minute, ending ranks; meanwhile the
signs of life must go on.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

N = TypeVar("N")


class LinkThread(Generic[N]):
    """`main` runs on the thread until it returns; what it raises before `ready` is raised by
    `start`, what it raises later by `news`."""

    def __init__(self, name: str) -> None:
        self._news: deque[N] = deque()
        self._arrived = threading.Event()
        self._started: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._loop = asyncio.new_event_loop()

    def start(self, main: Coroutine[Any, Any, None]) -> None:
        """Returns when `main` has called `ready`; Ctrl-C meanwhile ends the thread too."""
        self._main = self._loop.create_task(main)
        self._thread.start()
        try:
            self._started.result()
        except BaseException:
            self.call(self._main.cancel)
            raise

    @property
    def is_ready(self) -> bool:
        return self._started.done()

    def ready(self) -> None:
        self._started.set_result(None)

    def put(self, news: N) -> None:
        self._news.append(news)
        self._arrived.set()

    def news(self) -> list[N]:
        self._arrived.clear()
        found = []
        while self._news:
            found.append(self._news.popleft())
        if not found and self._failure:
            raise self._failure
        return found

    def wait(self, seconds: float) -> None:
        self._arrived.wait(max(0.0, seconds))

    def call(self, what: Callable[..., object], *arguments: Any) -> None:
        """On the thread, soon; nothing when it has ended."""

        def guarded() -> None:
            try:
                what(*arguments)
            except Exception as problem:  # noqa: BLE001 - `news` raises it
                self.fail(problem)

        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(guarded)

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    def fail(self, problem: BaseException) -> None:
        """A bug of ours: `news` raises it."""
        self._failure = self._failure or problem
        self._arrived.set()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._main)
        except BaseException as problem:  # noqa: BLE001 - `start` or `news` raises it
            if self._started.done():
                self.fail(problem)
            else:
                self._started.set_exception(problem)
        finally:
            with contextlib.suppress(Exception):
                _cancel_rest(self._loop)
            self._loop.close()


def _cancel_rest(loop: asyncio.AbstractEventLoop) -> None:
    rest = asyncio.all_tasks(loop)
    for task in rest:
        task.cancel()
    if rest:
        loop.run_until_complete(asyncio.wait(rest, timeout=2.0))
