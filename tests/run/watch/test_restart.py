"""When a job that failed is started again, and when it is not."""

from __future__ import annotations

import signal
from typing import Any

import msgspec
import pytest

from holdfast.analysis.scene.checkpoints import (
    CheckpointAccount,
    FirstStepState,
    Resumed,
    ScriptSaved,
)
from holdfast.analysis.scene.scene import Failure, Policy, RankView, Scene
from holdfast.run.watch.decide import Decision, StallHistory, decide
from holdfast.run.watch.restart import failure_of, no_resume
from holdfast.run.watch.verdict import judge
from tests.faults.joiners import a_claim
from tests.run.scenes import NOW, a_beat, a_rank, a_scene, ended, words

DEFAULT = Policy(patience=None, max_restarts=3)
TYPED = Policy(patience=None, max_restarts=3, restarts_typed=True)
KILLED = [a_rank(0), ended(1, -signal.SIGKILL, at=NOW)]
FRESH = Resumed(attempt=0, step=0, path="", world_size=2, saved_world=0)
RESUMES = CheckpointAccount(resumed=(FRESH,))


def decided(scene: Scene, policy: Policy = TYPED) -> Decision:
    return decide(scene.now, scene, judge(scene), policy, StallHistory())


def failure(slug: str = "rank-killed", *, step: int = 7, lasted: float = 30.0) -> Failure:
    return Failure(slug=slug, ranks=(1,), step=step, lasted=lasted)


# --- how many ------------------------------------------------------------------------------------


def test_a_typed_number_is_a_hard_limit() -> None:
    """Also for attempts that made progress, and however long they lasted."""
    past = tuple(failure(step=n, lasted=3600.0) for n in (10, 20, 30))
    assert decided(a_scene(KILLED, failures=past[:2])).reason == "restarting (3 of 3)"
    decision = decided(a_scene(KILLED, failures=past))
    assert (decision.action, decision.reason) == ("stop", "stopping: all 3 restarts are used")
    none = Policy(patience=None, max_restarts=0, restarts_typed=True)
    decision = decided(a_scene(KILLED), none)
    assert (decision.action, decision.reason) == ("stop", "stopping (--max-restarts is 0)")


def test_by_default_an_attempt_that_got_further_than_all_before_is_not_counted() -> None:
    past = tuple(failure(step=n) for n in (10, 20, 30, 40, 50))
    on = a_scene(KILLED, failures=past, checkpoints=RESUMES)
    decision = decided(on, DEFAULT)
    assert decision.reason == "restarting (not counted: the job made progress since the last one)"
    nowhere = tuple(failure(step=n, lasted=3600.0) for n in (400, 110, 120))
    decision = decided(a_scene(KILLED, failures=nowhere, checkpoints=RESUMES), DEFAULT)
    assert (decision.action, decision.reason) == ("stop", "stopping: all 3 restarts are used")


def test_time_alone_is_no_progress() -> None:
    """An attempt that never took a step, and hung for an hour."""
    unseen = [a_rank(0, beat=None), ended(1, -signal.SIGKILL, at=NOW)]
    unseen[1] = msgspec.structs.replace(unseen[1], beat=None)
    past = tuple(failure(step=0, lasted=n * 1000.0) for n in (1, 2, 4))
    scene = a_scene(unseen, started_at=NOW - 9000, failures=past, checkpoints=RESUMES)
    assert decided(scene, DEFAULT).action == "stop"


# --- only what can resume ------------------------------------------------------------------------


def seen_loading(**changes: Any) -> CheckpointAccount:
    first = FirstStepState(attempt=0, digest="d", optimizer_step=0, loaded=False)
    return CheckpointAccount(first_steps=(msgspec.structs.replace(first, **changes),))


@pytest.mark.parametrize(
    ("seen", "restarts"),
    [
        (CheckpointAccount(), False),
        (seen_loading(), False),
        (seen_loading(loaded=True), False),  # pretrained weights
        (seen_loading(loaded=True, optimizer_loaded=True), True),
        (seen_loading(optimizer_step=400), True),
        (RESUMES, True),
    ],
)
def test_without_the_flag_only_a_job_that_resumes_is_restarted(
    seen: CheckpointAccount, *, restarts: bool
) -> None:
    scene = a_scene(KILLED, checkpoints=seen)
    decision = decided(scene, DEFAULT)
    assert decision.action == ("restart" if restarts else "stop")
    assert restarts or decision.reason == no_resume(None)
    assert "--max-restarts" in no_resume(None)
    assert decided(scene, TYPED).action == "restart"


def test_where_the_script_saved_by_itself_the_flag_to_type_is_said() -> None:
    saved = ScriptSaved(attempt=0, step=40, path="out/ckpt.pt", optimizer=True)
    seen = msgspec.structs.replace(seen_loading(), script_saved=saved)
    reason = decided(a_scene(KILLED, checkpoints=seen), DEFAULT).reason
    assert "the script saved out/ckpt.pt at step 40: if it loads that at start" in reason
    assert "--max-restarts 3" in reason
    assert "nothing was seen" not in reason


# --- the same failure again ----------------------------------------------------------------------


@pytest.mark.parametrize("lasted", [30.0, 3600.0])
def test_the_same_failure_at_the_same_step_stops(lasted: float) -> None:
    scene = a_scene(
        [a_rank(0), ended(1, 1, said=words("ValueError", "bad batch"))],
        failures=(failure("python-exception", step=100, lasted=lasted),),
    )
    decision = decided(scene)
    assert decision.action == "stop"
    assert decision.verdict is not None
    assert decision.verdict.slug == "restart-loop"
    assert "python-exception on rank 1 after step 100, twice in a row" in decision.reason
    elsewhere = msgspec.structs.replace(scene, failures=(failure("python-exception", step=99),))
    assert decided(elsewhere).action == "restart"


def test_how_an_attempt_ended() -> None:
    scene = a_scene([a_rank(0, beat=None), ended(1, -9)])
    told = failure_of(scene, judge(scene))
    assert told == failure(step=100, lasted=told.lasted)
    assert told.lasted == pytest.approx(98.9)
    unseen = a_scene([a_rank(0, beat=None)])
    assert failure_of(unseen, None) == Failure(slug="", ranks=(), step=0, lasted=100.0)


# --- a script that cannot start ------------------------------------------------------------------

BEFORE_THE_GROUP = a_beat(steps=0, step_at=0.0, usual_step=0.0, group_ready=False, claim=None)


def failed_at_start(rank: int, code: int = 1, **said: Any) -> RankView:
    view = ended(rank, code, said=words(**said) if said else None)
    return msgspec.structs.replace(view, beat=BEFORE_THE_GROUP)


NO_MODULE: dict[str, Any] = {"kind": "ModuleNotFoundError", "text": "No module named 'einop'"}


@pytest.mark.parametrize(
    ("ranks", "restarts"),
    [
        ([failed_at_start(0, 2), failed_at_start(1, 2)], False),
        ([failed_at_start(0, **NO_MODULE), failed_at_start(1, **NO_MODULE)], False),
        ([failed_at_start(0, kind="ValueError", text="rank 0"),
          failed_at_start(1, kind="ValueError", text="rank 1")], False),
        ([failed_at_start(0, 75), failed_at_start(1, 75)], True),  # the script's own code
        ([failed_at_start(0, kind="HTTPError", text="503"),
          failed_at_start(1, kind="HTTPError", text="503")], True),
        ([failed_at_start(0, **NO_MODULE), failed_at_start(1, kind="ValueError")], True),
        ([failed_at_start(0, **NO_MODULE), a_rank(1, beat=BEFORE_THE_GROUP)], True),
        ([failed_at_start(0, -9), failed_at_start(1, -9)], True),
    ],
)  # fmt: skip
def test_a_script_that_fails_on_all_ranks_alike_before_the_first_step(
    ranks: list[RankView], *, restarts: bool
) -> None:
    decision = decided(a_scene(ranks))
    assert decision.action == ("restart" if restarts else "stop")
    assert (decision.start_failure is None) == restarts


def test_after_the_first_step_it_is_a_failure_like_any_other() -> None:
    ranks = [ended(r, 1, said=words(**NO_MODULE)) for r in range(2)]
    assert decided(a_scene(ranks)).action == "restart"


def test_a_job_that_worked_without_a_step_that_can_be_seen() -> None:
    """An update rule of its own, and the same exception everywhere after a while in the group."""
    claim = a_claim(0, at=NOW - 90.0)
    beat = msgspec.structs.replace(BEFORE_THE_GROUP, claim=claim, group_ready=True)
    ranks = [
        msgspec.structs.replace(failed_at_start(rank, **NO_MODULE), beat=beat) for rank in range(2)
    ]
    assert decided(a_scene(ranks)).start_failure is None
