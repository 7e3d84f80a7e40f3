"""Logs that are very large or meant to be slow take no longer than their size says."""

from __future__ import annotations

import pytest

from bench import explain_hostile
from bench.explain_hostile import (
    errors_of_ranks,
    interleaved,
    lost_peers,
    pumped,
    seconds,
    timed_out,
)

MUCH = 4
LINEAR = 10
"""four times as much may take so many times as long; what is quadratic takes sixteen"""


@pytest.mark.parametrize(
    "make",
    [
        lambda n: errors_of_ranks(60 * n, 2),
        lambda n: errors_of_ranks(8, 20 * n),
        lambda n: interleaved(600 * n, b"ValueError"),
        lambda n: lost_peers(100 * n),
        lambda n: timed_out(1_000 * n, positions=8),
        lambda n: b"Traceback (most recent call last):\n" * (300 * n),
        lambda n: b'{"log":"' * (5_000 * n),
        lambda n: b"\x1b]0;\x1b[" * (20_000 * n),
        lambda n: b"\r" * (100_000 * n),
        lambda n: pumped(b"torch.OutOfMemoryError: CUDA out of memory. ", b"1", b" MiB", 3 * n),
    ],
    ids=[
        "ranks",
        "errors",
        "interleaved",
        "lost-peers",
        "waits",
        "tracebacks",
        "json",
        "escapes",
        "returns",
        "numbers",
    ],
)
def test_time_grows_with_the_size(make: explain_hostile.Make) -> None:
    small, large = make(1), make(MUCH)
    seconds(small)  # what is built once
    once, more = seconds(small), seconds(large)
    if more > LINEAR * once:
        once, more = min(seconds(small) for _ in range(3)), seconds(large)
    assert more < LINEAR * max(once, 5e-3)
