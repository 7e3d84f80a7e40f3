"""Steps and pauses of a job, over all its ranks."""

from __future__ import annotations

from holdfast.run.watch.progress import JobProgress
from tests.run.scenes import a_beat, a_rank


def test_a_step_of_any_rank_is_progress_and_pauses_are_remembered() -> None:
    progress = JobProgress()
    progress.new_attempt(0.0)
    assert not progress.look([a_rank(0, beat=None), a_rank(1, beat=a_beat(steps=0))], 1.0)
    assert progress.look([a_rank(0, beat=a_beat(steps=1)), a_rank(1, beat=a_beat(steps=0))], 2.0)
    assert (progress.steps, progress.idle(3.0), list(progress.pauses)) == (1, 1.0, [])
    assert progress.look([a_rank(0, beat=a_beat(steps=1)), a_rank(1, beat=a_beat(steps=1))], 7.0)
    assert (progress.longest_pause, list(progress.pauses)) == (5.0, [5.0])
    assert progress.look([a_rank(0, beat=a_beat(steps=2)), a_rank(1, beat=a_beat(steps=1))], 7.5)
    assert (progress.steps, list(progress.pauses)) == (2, [5.0]), "short ones mean nothing"


def test_a_new_attempt_begins_at_no_step_and_keeps_the_pauses() -> None:
    progress = JobProgress()
    progress.look([a_rank(0, beat=a_beat(steps=3))], 1.0)
    progress.look([a_rank(0, beat=a_beat(steps=4))], 9.0)
    progress.new_attempt(20.0)
    assert (progress.steps, progress.idle(21.0), progress.longest_pause) == (0, 1.0, 8.0)
    assert progress.look([a_rank(0, beat=a_beat(steps=1))], 22.0)
    assert progress.longest_pause == 8.0, "starting is no pause"


def test_the_last_step_of_ranks_that_a_script_started_counts_once_only_the_script_is_left() -> None:
    progress = JobProgress()
    spawned = [a_rank(rank, beat=a_beat(steps=29)) for rank in (0, 1)]
    assert progress.look(spawned, 1.0)
    parent = a_rank(0, beat=a_beat(steps=30))  # with the steps of those that it waited for
    assert progress.look([parent], 2.0)
    assert progress.steps == 30
    assert not progress.look([parent], 3.0)
