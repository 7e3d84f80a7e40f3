"""What counts as a step."""

from __future__ import annotations

import statistics

from hypothesis import given
from hypothesis import strategies as st

from holdfast.rank.step_counter import MOST, WINDOW, StepCounter, caller


def counted(calls: list[int]) -> int:
    steps = StepCounter()
    for at, optimizer in enumerate(calls):
        steps.called((optimizer, 0), at)
    return steps.count


@given(st.integers(1, 50))
def test_one_optimizer_is_every_call(times: int) -> None:
    assert counted([1] * times) == times


@given(st.integers(1, 20), st.integers(1, 20))
def test_several_that_take_turns_are_one_step_a_round(optimizers: int, rounds: int) -> None:
    assert counted(list(range(optimizers)) * rounds) == rounds


@given(st.lists(st.permutations(range(5)), min_size=1, max_size=8))
def test_the_order_inside_a_round_does_not_matter(rounds: list[list[int]]) -> None:
    """Backward may run its hooks in another order each time."""
    assert counted([optimizer for one in rounds for optimizer in one]) == len(rounds)


def test_one_that_trains_more_often_sets_the_pace() -> None:
    discriminator, generator = 1, 2
    assert counted([discriminator] * 5 + [generator] + [discriminator] * 5) == 10


def test_an_optimizer_that_is_replaced_does_not_stop_the_count() -> None:
    assert counted([1, 1, 1, 2, 2, 2]) == 5


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=100))
def test_the_usual_duration_is_the_median_of_the_last(durations: list[int]) -> None:
    steps = StepCounter()
    now = 0
    steps.called((1, 0), now)
    for duration in durations:
        now += duration
        steps.called((1, 0), now)
    assert steps.usual == statistics.median_high(durations[-WINDOW:])
    assert steps.at == now


def test_before_the_second_step_nothing_is_usual() -> None:
    steps = StepCounter()
    assert steps.called((1, 0), 5)
    assert steps.usual == 0


class Optimizer:
    def __init__(self, *groups: list[object]) -> None:
        self.param_groups = [{"params": group} for group in groups]


def test_one_that_is_called_for_each_parameter_group_in_turn_is_one_step_a_round() -> None:
    """As ZeRO-1 and -2 do with the inner optimizer; 3 s a step are not 2 ms."""
    steps, groups = StepCounter(), [[object()], [object()]]
    inner = Optimizer(*groups)
    for step in range(40):
        for part, group in enumerate(groups):
            inner.param_groups = [{"params": group}]
            steps.called(caller(inner), step * 3_000_000_000 + part * 2_000_000)
    assert steps.count == 40
    assert steps.usual == 3_000_000_000


def test_one_that_is_made_anew_for_each_step_does_not_stop_the_count() -> None:
    assert counted(list(range(2 * MOST + 3))) == 3
    assert caller(empty := Optimizer([])) == (id(empty), 0)
    assert caller(bare := Optimizer()) == (id(bare), 0)
