"""Where a fault comes: when the rank has taken a number of steps it breaks itself, or waits until
the drill has broken it from outside. Once, whatever the attempt."""

from __future__ import annotations

import json
import os
import time

from holdfast.rank.witness import breakages
from holdfast.rank.witness.record_file import RecordFile

LONGEST_WAIT = 60.0
"""seconds: a drill that was killed must not leave a rank waiting"""


class Gate:
    def __init__(self, records: RecordFile) -> None:
        self._records = records

    @property
    def _order(self) -> str:
        return os.path.join(self._records.folder, f"order-{self._records.rank}.json")

    def is_next(self, step: int) -> bool:
        """Whether an order waits for this step, or for one before it."""
        try:
            with open(self._order, encoding="utf-8") as file:
                return int(json.load(file)["step"]) <= step
        except (FileNotFoundError, ValueError):  # none, or it is just being written
            return False

    def take(self, step: int) -> breakages.BreakageOrder | None:
        """The order for this step, which is then no longer there; None: there is none."""
        if not self.is_next(step):
            return None
        taken = f"{self._order}.taken"
        os.rename(self._order, taken)
        with open(taken, encoding="utf-8") as file:
            told = json.load(file)
        self._records.write("gate", time.time(), step=step, how=told["how"])
        waits = told["how"] == "wait" or bool(told.get("waits"))
        seconds = float(told.get("seconds", 0))
        return breakages.BreakageOrder(told["how"], seconds, step, waits, self._go)

    @property
    def _go(self) -> str:
        return os.path.join(self._records.folder, f"go-{self._records.rank}")

    def wait(self) -> None:
        """Until the drill has injected its fault, if that leaves this process alive."""
        until = time.monotonic() + LONGEST_WAIT
        while not os.path.exists(self._go) and time.monotonic() < until:
            time.sleep(0.005)
