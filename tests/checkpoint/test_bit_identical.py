"""A seeded few of what `make proof` does fifty times: killed, resumed, bit for bit the same."""

from __future__ import annotations

import random

import pytest

from tools import bit_identical


@pytest.mark.long
def test_a_job_killed_twice_ends_as_the_undisturbed_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert bit_identical.main(["2", "--seed", "7", "--ranks", "2"]) == 0, capsys.readouterr().err
    assert "2 kills in 1 jobs, seed 7: weights, optimizer and every loss identical" in (
        capsys.readouterr().out
    )


def test_kills_are_one_an_attempt_and_later_and_later() -> None:
    for seed in range(50):
        planned = [k.split(":") for k in bit_identical.kills(random.Random(seed), 5, 4)]
        assert [int(attempt) for attempt, *_ in planned] == list(range(5))
        steps = [int(step) for _, _, step, _ in planned]
        assert steps == sorted(steps)
        assert all(0 < step < bit_identical.STEPS for step in steps)
