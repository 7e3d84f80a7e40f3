"""When to act, when to wait, when to give up."""

from __future__ import annotations

import signal
from typing import Any

import msgspec
import pytest

from holdfast.analysis.scene.scene import Claim, Policy, Scene
from holdfast.run.watch.decide import Decision, StallHistory, decide, remember
from holdfast.run.watch.verdict import judge
from tests.run.scenes import (
    IN_SAVE,
    NOW,
    STEPS,
    WALL,
    a_beat,
    a_rank,
    a_scene,
    an_activity,
    changed,
    ended,
    entry,
    held_up,
    lost_its_peer,
    waiting,
)

DEFAULT = Policy(patience=None, max_restarts=3)
TYPED = Policy(patience=None, max_restarts=3, restarts_typed=True)
LONG_RUN = NOW - 90_000.0


def decided(
    scene: Scene, *, policy: Policy = TYPED, history: StallHistory | None = None
) -> Decision:
    history = history or StallHistory()
    verdict = judge(scene, timers_since=history.timers_since)
    return decide(scene.now, scene, verdict, policy, history)


def silent_for(seconds: float, **changes: Any) -> Scene:
    """Rank 2 sits somewhere without any sign of life, for so long."""
    return held_up({2: {}}, seconds=seconds, started_at=LONG_RUN, **changes)


def at_work_for(seconds: float, **changes: Any) -> Scene:
    culprit = {"stack": IN_SAVE, "alive_at": NOW}
    return held_up({2: culprit}, seconds=seconds, started_at=LONG_RUN, **changes)


STOPPED = {"activity": an_activity(state="T"), "state_since": NOW - 4}


def test_all_is_well() -> None:
    assert decided(a_scene()).action == "go-on"


def test_an_end_acts_at_once() -> None:
    decision = decided(a_scene([a_rank(0), ended(1, -signal.SIGKILL, at=NOW)]))
    assert (decision.action, decision.reason) == ("restart", "restarting (1 of 3)")
    assert decision.verdict is not None
    assert decision.verdict.slug == "rank-killed"


def test_an_exit_code_of_0_is_no_end() -> None:
    assert decided(a_scene([a_rank(0), ended(1, 0, at=NOW - 60)])).action == "go-on"


def test_the_cause_gets_two_seconds_to_show() -> None:
    """Its victims may be seen first."""
    assert decided(a_scene([lost_its_peer(0, at=NOW - 0.3), a_rank(1)])).action == "hold"
    late = decided(a_scene([lost_its_peer(0, at=NOW - 2.1), a_rank(1)]))
    assert late.action == "restart"
    assert late.verdict is not None
    assert late.verdict.ranks == ()


def test_told_to_stop() -> None:
    decision = decided(a_scene(told_to_stop="SIGTERM"))
    assert decision.action == "stop"
    assert "stopped by SIGTERM" in decision.reason


def test_a_stopped_process_is_acted_on_at_once() -> None:
    assert decided(changed(held_up({2: {}}), 2, **STOPPED)).action == "restart"


def test_a_process_that_was_stopped_together_with_us_is_not() -> None:
    scene = changed(held_up({2: {}}), 2, **STOPPED)
    assert decided(scene, history=StallHistory(timers_since=NOW - 1)).action == "go-on"
    assert decided(scene, history=StallHistory(timers_since=NOW - 3)).action == "restart"


# --- patience ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [61, 481, 1760])
def test_a_rank_that_sits_somewhere_is_only_talked_about(seconds: float) -> None:
    """It may wait for an answer, a lock, a prompt; with or without activity."""
    for scene in (silent_for(seconds), at_work_for(seconds)):
        decision = decided(scene)
        assert decision.action == "go-on"
        assert decision.verdict is not None
        assert decision.verdict.ranks == (2,)


def test_who_is_inside_the_kernel_is_only_talked_about() -> None:
    scene = changed(silent_for(600), 2, activity=an_activity(state="D"), state_since=NOW - 590)
    decision = decided(scene)
    assert decision.action == "go-on"
    assert decision.verdict is not None
    assert decision.verdict.slug == "driver-hang"


def before_the_first_step(seconds: float, **culprit: Any) -> Scene:
    page = a_beat(steps=0, step_at=0.0, usual_step=0.0)
    scene = held_up({2: {"beat": page, **culprit}}, seconds=seconds, victim={"beat": page})
    return msgspec.structs.replace(scene, started_at=NOW - seconds)


@pytest.mark.parametrize(("seconds", "action"), [(900, "go-on"), (1771, "restart")])
def test_before_the_first_step_only_the_timeout_counts(seconds: float, action: str) -> None:
    decision = decided(before_the_first_step(seconds))
    assert decision.action == action
    assert decision.verdict is not None


def test_patience_is_absolute_once_the_job_steps() -> None:
    policy = changed_policy(patience=8.0)
    assert decided(at_work_for(7.9), policy=policy).action == "go-on"
    decision = decided(at_work_for(8.1), policy=policy)
    assert decision.action == "restart"
    assert decision.reason.startswith("waited longer than --patience 8: restarting")
    long = changed_policy(patience=500.0)
    assert decided(silent_for(300), policy=long).action == "go-on"


def test_patience_counts_the_wait_and_not_the_step() -> None:
    """All evaluate for 90 s, and one is a second late."""
    scene = held_up({2: {"alive_at": NOW}}, seconds=90, victim={"alive_at": NOW - 1.0})
    assert decided(scene, policy=changed_policy(patience=8.0)).action == "go-on"


def test_patience_does_not_overtake_a_process_that_was_just_stopped() -> None:
    """It would be ended as a rank that sits somewhere; a moment later it is known to be stopped."""
    policy = changed_policy(patience=4.0)
    just = {"activity": an_activity(state="T"), "state_since": NOW - 2.9}
    assert decided(changed(silent_for(5), 2, **just), policy=policy).action == "go-on"
    decision = decided(changed(silent_for(5), 2, **STOPPED), policy=policy)
    assert decision.action == "restart"
    assert decision.verdict is not None
    assert decision.verdict.slug == "rank-frozen"
    runs_on = {"activity": an_activity(state="S"), "state_since": NOW - 0.1}
    assert decided(changed(silent_for(5), 2, **runs_on), policy=policy).action == "restart"


def test_patience_before_the_first_step_ends_only_the_silent() -> None:
    policy = changed_policy(patience=12.0)
    assert decided(before_the_first_step(13), policy=policy).action == "restart"
    busy = before_the_first_step(13, alive_at=NOW)
    assert decided(busy, policy=policy).action == "go-on"


def test_the_declared_timeout_decides() -> None:
    """Shortly before torch would abort, and blame a rank that waited."""
    assert decided(at_work_for(1765)).action == "go-on"
    decision = decided(at_work_for(1771))
    assert decision.action == "restart"
    assert "the wait has lasted 1771 s" in decision.reason
    assert "its timeout is 30 min" in decision.reason


@pytest.mark.parametrize("backend", ["nccl", ""])
def test_where_torch_would_not_abort_nothing_is_ended(backend: str) -> None:
    open_ended = msgspec.structs.replace(entry(STEPS + 1, finished=False), backend=backend)
    scene = at_work_for(9000, victim={"recorder": waiting(open_ended)})
    assert decided(scene).action == "restart"
    assert decided(scene, policy=changed_policy(nccl_aborts=False)).action == "go-on"
    gloo = at_work_for(9000)
    assert decided(gloo, policy=changed_policy(nccl_aborts=False)).action == "restart"


def test_a_rank_that_switched_the_watchdog_off_itself_is_believed() -> None:
    pending = msgspec.structs.replace(entry(STEPS + 1, finished=False), backend="nccl")
    page = a_beat(step_at=NOW - 9000, claim=a_claim(nccl_aborts=False))
    scene = at_work_for(9000, victim={"recorder": waiting(pending), "beat": page})
    decision = decided(scene)
    assert decision.action == "go-on"
    assert decision.verdict is not None
    assert decision.verdict.slug == "rank-stuck", "nothing happens at that timeout"


def a_claim(**changes: Any) -> Claim:
    claim = Claim(
        at=LONG_RUN, rank=0, world_size=4, store="127.0.0.1:29500", own_store=False,
        agent_store=True, timeout=1800.0, device="", given_rank=0, given_world_size=4,
        given_store="127.0.0.1:29500",
    )  # fmt: skip
    return msgspec.structs.replace(claim, **changes)


def test_a_timeout_that_is_not_known_ends_nothing() -> None:
    unknown = msgspec.structs.replace(entry(STEPS + 1, finished=False), timeout=0.0)
    page = a_beat(step_at=NOW - 9000, group_timeout=0.0)
    scene = at_work_for(9000, victim={"recorder": waiting(unknown), "beat": page})
    assert decided(scene).action == "go-on"


@pytest.mark.parametrize("step", [3600.0, -3600.0])
def test_a_stepped_wall_clock_changes_nothing(step: float) -> None:
    """Recorders keep wall time; here it was stepped by an hour while rank 2 saved."""
    for seconds, action in [(5, "go-on"), (1700, "go-on")]:
        scene = at_work_for(seconds)
        moved = msgspec.structs.replace(scene, evidence_wall=scene.evidence_wall + step)
        assert decided(moved).action == action
        if step > 0:
            patience = changed_policy(patience=2000.0)
            assert decided(moved, policy=patience).action == action


def changed_policy(**changes: Any) -> Policy:
    return msgspec.structs.replace(TYPED, **changes)


def test_a_wait_that_has_just_begun_does_not_count_the_time_before() -> None:
    scene = at_work_for(1700, victim={"alive_at": NOW - 5})
    assert decided(scene).action == "go-on"


def test_a_slow_rank_is_never_ended() -> None:
    verdict = judge(at_work_for(1700))
    assert verdict is not None
    slow = msgspec.structs.replace(verdict, slug="slow-rank")
    policy = changed_policy(patience=1.0)
    assert decide(NOW, at_work_for(1700), slow, policy, StallHistory()).action == "go-on"


# --- what is remembered ------------------------------------------------------------------------


def test_a_wait_is_counted_from_when_it_was_first_seen() -> None:
    """Waiting NCCL ranks keep a core busy: they never fall silent."""
    just_entered = WALL + (STEPS + 1) * 0.05 + 5.0
    scene = at_work_for(20, victim={"alive_at": NOW}, evidence_wall=just_entered)
    verdict = judge(scene)
    first = remember(NOW - 9, scene, verdict, StallHistory())
    again = remember(NOW, scene, verdict, first)
    assert first == again
    assert again.stalled_since == NOW - 9
    policy = changed_policy(patience=8.0)
    assert decide(NOW, scene, verdict, policy, again).action == "restart"
    assert decide(NOW, scene, verdict, policy, StallHistory()).action == "go-on"


def test_another_wait_begins_anew() -> None:
    scene = at_work_for(20)
    before = remember(NOW - 9, scene, judge(scene), StallHistory())
    other = at_work_for(20, ranks=3)
    assert remember(NOW, other, judge(other), before).stalled_since == NOW
    assert remember(NOW, scene, None, before).stalled_since == 0.0


def test_when_all_clocks_have_started_again_nothing_has_lasted() -> None:
    """Our own loop was late: the machine slept, or starved."""
    scene = silent_for(1790)
    assert decided(scene).action == "restart"
    assert decided(scene, history=StallHistory(timers_since=NOW)).action == "go-on"


def test_a_rank_that_leaves_in_its_own_time_is_not_ended() -> None:
    """Patience is for ranks that should take part; exit handlers upload and save."""
    page = a_beat(step_at=NOW - 60, leaving_at=NOW - 50)
    scene = held_up({2: {"beat": page}}, seconds=60, started_at=LONG_RUN)
    verdict = judge(silent_for(60))
    assert verdict is not None
    patience = changed_policy(patience=8.0)
    assert decide(NOW, silent_for(60), verdict, patience, StallHistory()).action == "restart"
    assert decide(NOW, scene, verdict, patience, StallHistory()).action == "go-on"
