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
