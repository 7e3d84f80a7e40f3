"""What ranks told of saves and resumes: said once, and never taken for what holds a job up."""

from __future__ import annotations

import io
from pathlib import Path

from holdfast.analysis.job.journal_records import FirstStepRecord, kind_of
from holdfast.analysis.scene.checkpoints import CheckpointAccount
from holdfast.analysis.scene.scene import Scene
from holdfast.run.runs import journal
from holdfast.run.watch import restart, resume_tracker, verdict
from holdfast.run.watch.reporter import Reporter
from holdfast.view import run_screen
from tests.faults.checkpoints.test_config_changed import CHANGED
from tests.faults.checkpoints.test_restart_from_zero import first, restarted
from tests.run.scenes import a_scene, ended, held_up, words

BEGAN_AGAIN = restarted(first_steps=(first(), first(1)))
NEWS = [
    resume_tracker.TrackedEvent(
        BEGAN_AGAIN.checkpoints, FirstStepRecord(attempt=1, digest=""), "so it was told"
    )
]


def told(scene: Scene, times: int, folder: Path) -> tuple[list[str], str]:
    screen = io.StringIO()
    kept = journal.Journal(str(folder / "journal.jsonl"))
    reporter = Reporter(kept, run_screen.Screen(screen), "node-a", None)
    for _ in range(times):
        reporter.rank_events(NEWS, scene)
    kept.close()
    return [kind_of(record) for record in kept.records()], screen.getvalue()


def test_a_notice_is_said_once_an_attempt_and_news_as_often_as_it_comes(tmp_path: Path) -> None:
    kinds, screen = told(BEGAN_AGAIN, 2, tmp_path)
    assert kinds == ["first-step", "notice", "first-step"]
    assert screen.count("notice[HOLD801] restart-from-zero: the job restarted from step 0") == 1
    assert screen.count("so it was told") == 2


def test_a_healthy_job_gets_no_notice(tmp_path: Path) -> None:
    kinds, screen = told(a_scene(), 1, tmp_path)
    assert kinds == ["first-step"]
    assert "notice" not in screen


def test_it_never_explains_a_stall_nor_an_end() -> None:
    account = BEGAN_AGAIN.checkpoints
    stuck = verdict.judge(held_up({2: {}}, attempt=1, checkpoints=account))
    assert stuck is not None
    assert stuck.slug == "rank-stuck"
    killed = verdict.judge(a_scene([ended(0, -9), ended(1, 1)], attempt=1, checkpoints=account))
    assert killed is not None
    assert killed.slug == "rank-killed"
    assert verdict.judge(BEGAN_AGAIN) is None
    assert [found.slug for found in verdict.news(BEGAN_AGAIN)] == ["restart-from-zero"]


def test_a_refusal_ends_the_job_and_no_restart_is_tried() -> None:
    refused = a_scene([ended(0, 1, said=CHANGED), ended(1, 1, said=CHANGED)])
    found = verdict.judge(refused)
    assert found is not None
    assert (found.fatal, found.ranks) == (True, (0, 1))
    assert found.slug in ("config-changed", "world-size-mismatch")
    assert verdict.news(refused) == []


def test_the_same_bug_after_a_resume_is_met_at_the_same_step_of_the_job() -> None:
    bug = [ended(0, 1, said=words("ValueError", "bad batch"))]  # after step 100 of the attempt
    first_time = restart.failure_of(a_scene(bug), None)
    again = restart.failure_of(
        a_scene(bug, attempt=1, checkpoints=CheckpointAccount(base=1200)), None
    )
    assert (first_time.step, again.step) == (100, 1300)


def test_the_status_shows_the_step_of_the_job() -> None:
    line = run_screen.status(
        a_scene(attempt=1, checkpoints=CheckpointAccount(base=1200)), restarts=1
    )
    assert "step 1300" in line
