"""At which step an attempt resumed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.drill.align import ResumePoint, align
from holdfast.analysis.drill.job_attempts import job_attempts
from holdfast.analysis.drill.records import RankAttempt
from holdfast.analysis.drill.reference import reference
from tests.analysis.drill.jobs import digest, rank_attempt, ranks, undisturbed

replace = msgspec.structs.replace


def resumed(later: Sequence[RankAttempt], **kwargs: Any) -> ResumePoint:
    """After an attempt that came to step 25."""
    before = ranks(until=25, **kwargs)
    attempts = job_attempts([*before, *later])
    return align(attempts, undisturbed())[-1].resumed


def without(attempts: Sequence[RankAttempt], **fields: object) -> list[RankAttempt]:
    return [replace(one, start=replace(one.start, **fields)) for one in attempts if one.start]


def later(**kwargs: Any) -> list[RankAttempt]:
    return ranks(attempt=1, t=50.0, **kwargs)


@given(base=st.integers(0, 25), sharded=st.booleans())
def test_by_its_weights(base: int, sharded: bool) -> None:
    before = ranks(until=25, sharded=sharded)
    attempts = job_attempts([*before, *later(base=base, sharded=sharded)])
    found = align(attempts, undisturbed(sharded=sharded))[-1]
    assert found.resumed == ResumePoint(base, "weights")
    assert found.repeated == 25 - base


def test_the_first_attempt_has_nothing_to_resume_from() -> None:
    found = align(job_attempts(ranks(seed="other")), undisturbed())
    assert found[0].resumed == ResumePoint(0, "nothing before it")


def test_what_it_loads_is_what_it_saved_itself() -> None:
    """Another seed: no weights of the undisturbed job fit, its own do."""
    assert resumed(later(base=20, seed="own"), seed="own") == ResumePoint(20, "weights")


def same_weights(one: RankAttempt, steps: range) -> RankAttempt:
    """As if these steps had changed nothing: a learning rate of 0."""
    base = one.start.optimizer_step or 0 if one.start else 0
    changed = [
        replace(record, weights="still") if record.step + base in steps else record
        for record in one.steps
    ]
    start = one.start
    if start and base in steps:
        start = replace(start, weights="still")
    return replace(one, steps=tuple(changed), start=start)


def frozen(base: int, **start: object) -> ResumePoint:
    """The weights do not change in steps 1 to 3 of a job, and an attempt resumes among them."""
    still = range(4)
    whole = [same_weights(one, still) for one in ranks()]
    before = [same_weights(one, still) for one in ranks(until=5)]
    after = without([same_weights(one, still) for one in later(base=base)], **start)
    return align(job_attempts([*before, *after]), reference(whole))[-1].resumed


def test_weights_that_fit_several_steps_are_told_apart_by_those_that_follow() -> None:
    assert frozen(2, optimizer_step=None) == ResumePoint(2, "weights")


def test_a_fresh_start_is_not_taken_for_a_resume_nor_the_other_way_round() -> None:
    """Nothing but the weights is known, and they fit both."""
    still = range(31)
    whole = [same_weights(one, still) for one in ranks()]
    after = without([same_weights(one, still) for one in later(base=10)], optimizer_step=None)
    before = [same_weights(one, still) for one in ranks(until=25)]
    found = align(job_attempts([*before, *after]), reference(whole))[-1].resumed
    assert found.step is None
    assert "the weights were the same after steps" in found.why


def test_the_optimizers_count_decides_among_weights_that_fit() -> None:
    still = range(31)
    whole = [same_weights(one, still) for one in ranks()]
    before = [same_weights(one, still) for one in ranks(until=25)]
    after = [same_weights(one, still) for one in later(base=10)]
    found = align(job_attempts([*before, *after]), reference(whole))[-1].resumed
    assert found == ResumePoint(10, "optimizer")


def test_by_values_where_bits_are_not_those_that_were_saved() -> None:
    """Half precision in the checkpoint."""
    after = [
        replace(one, steps=tuple(replace(r, weights=digest("h", r.step)) for r in one.steps))
        for one in without(later(base=20), weights="half", optimizer_step=None)
    ]
    near = [
        replace(one, start=replace(one.start, values=tuple(v + 1e-4 for v in one.start.values)))
        for one in after
        if one.start
    ]
    assert resumed(near) == ResumePoint(20, "values")


def other_way(attempts: Sequence[RankAttempt], **fields: object) -> list[RankAttempt]:
    """Weights that nothing else has; no values."""
    return [
        replace(
            one,
            steps=tuple(
                replace(record, weights=digest("x", record.step), values=()) for record in one.steps
            ),
        )
        for one in without(attempts, weights="unlike", values=(), **fields)
    ]


def test_by_the_optimizers_count() -> None:
    assert resumed(other_way(later(base=20))) == ResumePoint(20, "optimizer")


def test_by_the_data_alone() -> None:
    after = other_way(later(base=20), optimizer_step=None)
    assert resumed(after) == ResumePoint(20, "data")


def test_not_by_a_count_that_ranks_disagree_about() -> None:
    after = other_way(later(base=20))
    assert after[0].start
    after[0] = replace(after[0], start=replace(after[0].start, optimizer_step=3))
    assert resumed(after).by == "data"


def test_a_fresh_start_with_other_first_weights() -> None:
    """No seed: neither the undisturbed job's weights nor its own fit, the optimizer is new."""
    assert resumed(later(base=0, seed="third"), seed="second") == ResumePoint(0, "values")


def test_unknown_is_said_and_not_guessed() -> None:
    after = [
        replace(one, steps=tuple(replace(record, data=None) for record in one.steps))
        for one in other_way(later(base=20), optimizer_step=None)
    ]
    found = resumed(after)
    assert found.step is None
    assert found.why == "its weights are not those of any step that was seen"


def test_a_step_that_the_job_had_not_come_to() -> None:
    found = resumed(other_way(later(base=29), optimizer_step=29))
    assert found.step is None
    assert "the job had come to 25" in found.why


def test_ranks_that_differ_are_named() -> None:
    after = [
        rank_attempt(rank, base=20 if rank else 10, attempt=1, t=50.0, sharded=True)
        for rank in range(4)
    ]
    attempts = job_attempts([*ranks(until=25, sharded=True), *after])
    found = align(attempts, undisturbed(sharded=True))[-1].resumed
    assert found.torn
    assert found.step is None


def test_another_number_of_ranks_that_each_hold_all_weights() -> None:
    assert resumed(later(world=2, base=20)) == ResumePoint(20, "weights")


def test_another_number_of_ranks_that_hold_a_part_each() -> None:
    attempts = job_attempts([*ranks(until=25, sharded=True), *later(world=2, base=20)])
    found = align(attempts, undisturbed(sharded=True))[-1].resumed
    assert found == ResumePoint(20, "optimizer")


def test_several_attempts_one_after_the_other() -> None:
    attempts = job_attempts([
        *ranks(until=12), *later(base=10, until=17), *ranks(base=15, attempt=2, t=90.0),
    ])  # fmt: skip
    found = align(attempts, undisturbed())
    assert [one.resumed.step for one in found] == [0, 10, 15]
    assert [one.repeated for one in found] == [0, 2, 2]


# --- which processes belong together -------------------------------------------------------------


def test_a_start_of_the_runner_counts_its_attempts_from_0() -> None:
    found = job_attempts([*ranks(until=9), *ranks(base=5, t=50.0)], (0.0, 45.0))
    assert [(one.start, one.taken) for one in found] == [(0, 9), (1, 25)]


def test_a_restart_that_the_launcher_did_not_count() -> None:
    found = job_attempts([*ranks(until=9), *ranks(base=5, t=50.0)])
    assert [one.taken for one in found] == [9, 25]


def test_children_of_a_rank_are_no_attempt() -> None:
    child = replace(ranks(t=3.0)[0], start=None, steps=())
    found = job_attempts([*ranks(), child])
    assert len(found) == 1
    assert found[0].taken == 30


def test_an_attempt_that_never_trained_is_one() -> None:
    dead = [replace(one, start=None, steps=()) for one in ranks(attempt=1, t=50.0)]
    assert [one.taken for one in job_attempts([*ranks(), *dead])] == [30, 0]
