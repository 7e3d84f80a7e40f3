"""The parts of the watch that are not the watch itself: a bug in one of them costs that one."""

from __future__ import annotations

from collections.abc import Callable

PartFailed = Callable[[str, Exception], None]


class PartGuard:
    def __init__(self, failed: PartFailed) -> None:
        """`failed` is called once for each part."""
        self._failed = failed
        self._told: set[str] = set()

    def run(self, part: str, call: Callable[[], None]) -> None:
        """Never raises. A part that failed is tried again: its next scene may suit it better."""
        try:
            call()
        except Exception as bug:  # noqa: BLE001 - deaths and verdicts matter more
            if part not in self._told:
                self._told.add(part)
                self._failed(part, bug)
