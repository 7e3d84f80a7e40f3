"""The sums and exchanges that a rank of the smoke test takes part in, every result compared.

torch is handed in: this file imports nothing but the standard library, like `rank`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from holdfast.check.smoke.stages import (
    LADDER,
    MOST_PAIRED,
    PAIR_BYTES,
    PAIRING_BELOW,
    PERIOD,
    REPEATS,
    TOP_RUNG,
    TOP_RUNG_BELOW,
    contribution,
    total,
)

ROOM = 6
"""times the top rung that must be free on every GPU: the row, the sum, what is expected, buffers"""


class Sums:
    """What one rank contributes to the group that exists, and what it reports of it."""

    def __init__(
        self, torch: Any, rank: int, world: int, device: Any, report: Callable[..., None]
    ) -> None:
        self.torch = torch
        self.rank = rank
        self.world = world
        self.device = device
        self.report = report
        self.last_size, self.last_seconds = LADDER[0], 0.0

    def climb(self) -> None:
        """The ladder: each size once to connect, then timed, every result compared exactly."""
        for size in LADDER:
            self._rung(size)

    def climb_to_the_top(self) -> None:
        """One more rung where all GPUs have room for it and the one before was fast."""
        free = self.torch.cuda.mem_get_info(self.device)[0]
        if self._all_agree(free > ROOM * TOP_RUNG and self.last_seconds < TOP_RUNG_BELOW):
            self._rung(TOP_RUNG)

    def pair_up(self) -> None:
        """Every two ranks by themselves: one slow link hides in the sum of all."""
        if not 2 < self.world <= MOST_PAIRED:  # two ranks are a pair already
            return
        pairs = self.world * (self.world - 1) // 2
        expected = pairs * (1 + REPEATS) * PAIR_BYTES / self.last_size * self.last_seconds
        if not self._all_agree(expected < PAIRING_BELOW):
            return
        for second in range(self.world):
            for first in range(second):
                self._pair(first, second)

    def _all_agree(self, willing: bool) -> bool:  # noqa: FBT001 - a vote
        """All ranks must come to the same answer, or they would wait for each other."""
        votes = self.torch.tensor([int(willing)], device=self.device)
        self.torch.distributed.all_reduce(votes)
        return int(votes.item()) == self.world

    def _rung(self, size: int) -> None:
        took = []
        wrong = ""
        for round_number in range(1 + REPEATS):
            mine = self._row(self.rank, size, round_number)
            self.torch.distributed.barrier()  # else we would time who filled its row last
            began = time.monotonic()
            self.torch.distributed.all_reduce(mine)
            self._finish()
            took.append(time.monotonic() - began)
            wrong = wrong or self._first_difference(mine, self._sum(size, round_number))
        self.last_size, self.last_seconds = size, statistics.median(took[1:])
        self.report("rung", size=size, seconds=self.last_seconds, correct=not wrong, text=wrong)

    def _pair(self, first: int, second: int) -> None:
        taking_part = self.rank in (first, second)
        peer = first + second - self.rank
        took = []
        wrong = ""
        for round_number in range(1 + REPEATS):
            if taking_part:
                mine = self._row(self.rank, PAIR_BYTES, round_number)
                theirs = self.torch.zeros_like(mine)
            self.torch.distributed.barrier()
            if not taking_part:
                continue
            began = time.monotonic()
            self._exchange(mine, theirs, peer)
            self._finish()
            took.append(time.monotonic() - began)
            wrong = wrong or self._first_difference(
                theirs, self._row(peer, PAIR_BYTES, round_number)
            )
        if taking_part:
            self.report(
                "pair",
                peer=peer,
                size=PAIR_BYTES,
                seconds=statistics.median(took[1:]),
                correct=not wrong,
                text=wrong,
            )

    def _exchange(self, mine: Any, theirs: Any, peer: int) -> None:
        distributed = self.torch.distributed
        calls = [
            distributed.P2POp(distributed.isend, mine, peer),
            distributed.P2POp(distributed.irecv, theirs, peer),
        ]
        for work in distributed.batch_isend_irecv(calls):
            work.wait()

    def _row(self, rank: int, size: int, round_number: int) -> Any:
        return self._repeated(
            [contribution(rank, position, round_number) for position in range(PERIOD)], size // 4
        )

    def _sum(self, size: int, round_number: int) -> Any:
        return self._repeated(
            [total(self.world, position, round_number) for position in range(PERIOD)], size // 4
        )

    def _first_difference(self, got: Any, expected: Any) -> str:
        if self.torch.equal(got, expected):
            return ""
        at = int((got != expected).nonzero()[0])
        return f"element {at}: got {got[at].item():g}, expected {expected[at].item():g}"

    def _repeated(self, period: list[int], count: int) -> Any:
        row = self.torch.tensor(period, dtype=self.torch.float32, device=self.device)
        return row.repeat(count // PERIOD + 1)[:count].contiguous()

    def _finish(self) -> None:
        if self.device.type == "cuda":
            self.torch.cuda.synchronize(self.device)
