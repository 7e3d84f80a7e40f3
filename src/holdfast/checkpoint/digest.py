"""SHA-256 of a file while it is written: in a thread beside the write.

hashlib lets go of the GIL for anything over 2 KiB, and so does write(2): both run at once, on the
same bytes, without a copy.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType


class Digest:
    """`update` returns at once; the bytes must stay until the `with` block ends."""

    def __init__(self, *, beside: bool) -> None:
        self._hash = hashlib.sha256()
        self._thread = ThreadPoolExecutor(1, "holdfast-digest") if beside else None
        self._last: Future[None] | None = None

    def update(self, data: memoryview) -> None:
        if self._thread is None:
            self._hash.update(data)
        else:
            self._last = self._thread.submit(self._hash.update, data)

    def hexdigest(self) -> str:
        if self._last is not None:
            self._last.result()  # one thread, so the last one done is all of them done
        return self._hash.hexdigest()

    def __enter__(self) -> Digest:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._thread is not None:
            self._thread.shutdown(wait=True, cancel_futures=True)
