"""Jobs that do not repeat their own bits, or go on with another number of ranks."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.drill.injection import Then
from holdfast.analysis.drill.records import BeforeStepsRecord, RankAttempt, StepRecord
from tests.analysis.drill.jobs import Play, digest, number, ranks

replace = msgspec.structs.replace


def noisy(
    attempts: list[RankAttempt], noise: Callable[[int], float], seed: str
) -> list[RankAttempt]:
    """Bits that nothing else has, and values and losses that are off by `noise` of their scale."""

    def off(record: StepRecord, base: int) -> StepRecord:
        step = record.step + base
        by = noise(step) * (1 if number(seed, step) % 2 else -1)
        return replace(
            record,
            weights=digest(seed, step),
            loss=(record.loss or 0.0) * (1 + by),
            values=tuple(v + by * 0.01 * step for v in record.values),
        )

    changed = []
    for one in attempts:
        base = (one.start.optimizer_step or 0) if one.start else 0
        start = one.start and replace(one.start, weights=digest(seed, base))
        steps = tuple(off(record, base) for record in one.steps)
        changed.append(replace(one, start=start, steps=steps))
    return changed


def restless(before: float, after: float) -> Play:
    """A job whose bits are others each time; it loads what it saved."""
    play = Play()
    play.first = noisy(play.first, lambda step: before, "first")
    play.second = noisy(play.second, lambda step: after, "second")
    play.second = [
        replace(one, start=replace(one.start, weights=digest("first", 20)))
        for one in play.second
        if one.start
    ]
    return play


@given(noise=st.floats(1e-7, 1e-3), more=st.floats(0.1, 3))
def test_the_tolerance_is_measured_before_the_fault(noise: float, more: float) -> None:
    row = restless(noise, noise * more).row()
    assert (row.status, row.data, row.loss, row.weights) == ("kept", "identical", "same", "same")
    assert row.repeats_itself is False
    assert len(row.remarks) == 2
    assert "compared within" in row.remarks[0]


@given(noise=st.floats(1e-7, 1e-3), after=st.floats(0.08, 0.5))
def test_what_is_further_away_than_that_differs(noise: float, after: float) -> None:
    row = restless(noise, after).row()
    assert {one.promise for one in row.broken} == {"loss", "weights"}


def test_a_wider_spread_allows_more() -> None:
    assert restless(0.03, 0.06).row().status == "kept"
    assert restless(0.001, 0.06).row().status == "broken"


def test_without_values_only_the_loss_can_be_compared() -> None:
    play = restless(1e-4, 1e-4)
    for attempts in (play.first, play.second):
        for rank, one in enumerate(attempts):
            steps = tuple(replace(record, values=()) for record in one.steps)
            attempts[rank] = replace(one, steps=steps)
    row = play.row()
    assert (row.status, row.loss, row.weights) == ("unproven", "same", "unknown")
    assert row.unchecked[0].startswith("weights: at step 21 only digests could be read")


def unseeded() -> Play:
    """No seed anywhere: two undisturbed runs have nothing in common but their data."""
    return Play(seed="another")


def test_without_a_seed_what_was_done_twice_has_to_agree() -> None:
    row = unseeded().row()
    assert row.repeated == 5
    assert (row.status, row.weights) == ("kept", "same")
    assert "set a seed" in " ".join(row.remarks)


def test_without_a_seed_and_with_nothing_done_twice_it_is_unproven() -> None:
    play = Play(seed="another", resumes=25, fault=25, saves=[25])
    row = play.row()
    assert (row.status, row.weights) == ("unproven", "unknown")
    assert "set a seed" in row.why


def test_without_a_seed_what_was_done_twice_and_differs_proves_nothing() -> None:
    """Random numbers may be neither seeded nor restored."""
    play = unseeded()
    for rank, one in enumerate(play.second):
        steps = tuple(
            replace(record, weights=digest("third", record.step), values=(0.5, 0.5, 0.5))
            for record in one.steps
        )
        play.second[rank] = replace(one, steps=steps)
    row = play.row()
    assert row.status == "unproven"
    assert "was done twice" in row.why


def test_no_step_before_the_fault_tells_whether_the_job_repeats_itself() -> None:
    play = Play()
    play.rehearsal = replace(play.rehearsal, at_step=0)
    play.first = noisy(ranks(), lambda step: 0.3, "other")
    play.second = []
    play.change_injection(then=Then.GOES_ON, notice_within=60.0)
    row = play.change(injected=0.0, saved=()).row()
    assert row.repeats_itself is None
    assert (row.loss, row.weights) == ("unknown", "unknown")
    assert "no step before the fault shows" in " ".join(row.unchecked)


def test_data_in_another_order_each_time() -> None:
    """A sampler without a seed: what was done twice has to agree."""
    play = restless(1e-4, 1e-4)
    for attempts in (play.first, play.second):
        for rank, one in enumerate(attempts):
            base = (one.start.optimizer_step or 0) if one.start else 0
            steps = tuple(
                replace(record, data=number("mine", record.step + base, rank))
                for record in one.steps
            )
            attempts[rank] = replace(one, steps=steps)
    row = play.row()
    assert (row.status, row.data) == ("kept", "same")
    other = [replace(record, data=7) for record in play.second[0].steps]
    play.second[0] = replace(play.second[0], steps=tuple(other))
    row = play.row()
    assert (row.status, row.data) == ("unproven", "unknown")
    assert "seed whatever chooses them" in row.why
    assert "random_split's generator" in row.why


# --- another number of ranks ---------------------------------------------------------------------


def with_ranks(world: int, *, off: float = 1e-6, sharded: bool = False) -> Play:
    """It goes on with another number of ranks, which share the same global batch."""
    play = Play(sharded=sharded)
    play.change_injection(world=world)
    resumed = ranks(world=world, base=20, attempt=1, t=play.again_at, sharded=sharded)
    sums = {step: sum(number("data", step, rank) for rank in range(4)) for step in range(21, 31)}
    losses = {
        step: sum(one.steps[step - 1].loss or 0.0 for one in ranks()) / 4 for step in range(21, 31)
    }
    play.second = noisy(resumed, lambda step: off, "fewer")
    for rank, one in enumerate(play.second):
        assert one.start
        steps = tuple(
            replace(
                record,
                data=sums[record.step + 20] % 2**64 if rank == 0 else 0,
                loss=losses[record.step + 20] * (1 + off),
            )
            for record in one.steps
        )
        weights = digest("w", 20, rank if sharded else "all", "")
        start = replace(one.start, weights=weights)
        play.second[rank] = replace(one, start=start, steps=steps)
    return play


@pytest.mark.parametrize("world", [2, 3, 8])
def test_another_number_of_ranks_is_compared_within_a_tolerance(world: int) -> None:
    row = with_ranks(world).row()
    assert (row.status, row.data, row.loss, row.weights) == ("kept", "identical", "same", "same")
    assert f"with {world} ranks instead of 4" in row.remarks[0]


def test_other_random_numbers_change_the_loss_of_a_step_but_hardly_its_mean() -> None:
    play = with_ranks(2)
    for rank, one in enumerate(play.second):
        steps = [
            replace(record, loss=(record.loss or 0.0) * (1.15 if record.step % 2 else 0.85))
            for record in one.steps
        ]
        play.second[rank] = replace(one, steps=tuple(steps))
    row = play.row()
    assert (row.status, row.loss) == ("kept", "same")
    assert "the mean over 10 steps is" in row.remarks[0]


@pytest.mark.parametrize(("off", "status"), [(0.4, "unproven"), (3.0, "broken")])
def test_another_number_of_ranks_that_trains_something_else(off: float, status: str) -> None:
    """Chance may do the first, if not often; the second is another training."""
    row = with_ranks(2, off=off).row()
    assert row.status == status
    assert row.loss == ("unknown" if status == "unproven" else "differs")
    assert row.weights == "unknown"


def test_another_number_of_ranks_that_loads_something_else() -> None:
    play = with_ranks(2)
    play.second = [
        replace(one, start=replace(one.start, weights="unlike", values=(9.0, 9.0, 9.0)))
        for one in play.second
        if one.start
    ]
    row = play.row()
    assert [one.promise for one in row.broken] == ["weights"]
    assert "what was loaded of step 20" in row.broken[0].seen


def test_another_number_of_ranks_that_hold_a_part_each() -> None:
    play = with_ranks(2, sharded=True)
    for attempts in (play.first, play.second):  # parts differ from rank to rank
        for rank, one in enumerate(attempts):
            steps = tuple(replace(r, values=(*r.values, float(rank))) for r in one.steps)
            attempts[rank] = replace(one, steps=steps)
    row = play.row()
    assert (row.status, row.loss, row.weights) == ("kept", "same", "same")
    assert "judged by the loss" in row.remarks[1]
    for rank, one in enumerate(play.second):
        steps = tuple(replace(r, loss=(r.loss or 0.0) * 1.3) for r in one.steps)
        play.second[rank] = replace(one, steps=steps)
    row = play.row()
    assert (row.status, row.loss, row.weights) == ("unproven", "unknown", "unknown")


def _without_values(one: RankAttempt) -> BeforeStepsRecord | None:
    return one.start and replace(one.start, values=())


def test_weights_of_low_precision_are_not_held_against_their_rounding() -> None:
    """In bfloat16 the last bit of a weight is as large as many steps."""
    play = with_ranks(2, off=0.0)

    def rounded(record: StepRecord, up: float) -> StepRecord:
        return replace(record, values=(1.5 + up, 0.75, -3.0))

    play.reference = play.reference._replace(
        trace=play.reference.trace._replace(
            steps={
                step: facts._replace(values=dict.fromkeys(facts.values, (1.5, 0.75, -3.0)))
                for step, facts in play.reference.trace.steps.items()
            }
        )
    )
    for attempts, up in ((play.first, 0.0), (play.second, 2**-7)):
        for rank, one in enumerate(attempts):
            steps = tuple(rounded(record, up) for record in one.steps)
            attempts[rank] = replace(one, start=_without_values(one), steps=steps)
    assert play.row().weights == "same"
