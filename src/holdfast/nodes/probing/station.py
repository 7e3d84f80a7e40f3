"""A node's part in trials of paths, on a thread of its own: a loop that is busy elsewhere must not
look like a slow path, and a trial must not hold up that loop."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading

from holdfast.nodes.probing.answer import open_listeners, try_paths
from holdfast.nodes.probing.messages import OpenListeners, ProbeReply, ProbeRequest

KEEP_OPEN = 20.0
"""seconds after the last question: nothing of ours listens while no paths are tried"""


class ProbeStation:
    """Answers come out of `replies`, in no particular order; what failed gives none."""

    def __init__(self) -> None:
        self._replies: queue.SimpleQueue[ProbeReply] = queue.SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._listening: dict[int, contextlib.AsyncExitStack] = {}
        self._idle: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, request: ProbeRequest) -> None:
        loop = self._started()
        loop.call_soon_threadsafe(self._begin, request)

    def replies(self) -> list[ProbeReply]:
        found = []
        with contextlib.suppress(queue.Empty):
            while True:
                found.append(self._replies.get_nowait())
        return found

    def close(self) -> None:
        if self._loop and self._thread:
            loop = self._loop
            asyncio.run_coroutine_threadsafe(self._end(), loop).result(5)
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join(5)
            loop.close()
        self._loop = self._thread = None

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=self._loop.run_forever, name="paths", daemon=True
            )
            self._thread.start()
        return self._loop

    def _begin(self, request: ProbeRequest) -> None:
        task = asyncio.ensure_future(self._answer(request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, request: ProbeRequest) -> None:
        self._stay_open()
        with contextlib.suppress(OSError):  # no answer: the node that asked has its deadline
            if isinstance(request, OpenListeners):
                stack = self._listening.setdefault(request.trial, contextlib.AsyncExitStack())
                self._replies.put(await open_listeners(request, stack))
            else:
                self._replies.put(await try_paths(request))
        self._stay_open()

    def _stay_open(self) -> None:
        if self._idle:
            self._idle.cancel()
        loop = asyncio.get_running_loop()
        self._idle = loop.call_later(KEEP_OPEN, lambda: asyncio.ensure_future(self._close_all()))

    async def _close_all(self) -> None:
        while self._listening:
            _, stack = self._listening.popitem()
            await stack.aclose()

    async def _end(self) -> None:
        if self._idle:
            self._idle.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._close_all()
