"""What holds of every decision: a healthy job is not ended, and restarts are bounded."""

from __future__ import annotations

import signal
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.job import wait_limit
from holdfast.analysis.scene.checkpoints import CheckpointAccount, Resumed
from holdfast.analysis.scene.scene import Policy, RankView, Scene
from holdfast.run.watch import restart
from holdfast.run.watch.decide import StallHistory, decide
from holdfast.run.watch.verdict import judge
from tests.run.scenes import (
    IN_SAVE,
    IN_SLEEP,
    NOW,
    STEPS,
    a_beat,
    an_activity,
    ended,
    entry,
    held_up,
    waiting,
)

DAY = 86_400.0
TIMEOUTS = st.sampled_from([0.0, 6.0, 20.0, 600.0, 1800.0, 7200.0])
SECONDS = st.sampled_from([6.0, 60.0, 2000.0, DAY])
CULPRITS = st.fixed_dictionaries(
    {
        "stack": st.sampled_from([IN_SAVE, IN_SLEEP, None]),
        "activity": st.builds(an_activity, state=st.sampled_from("SRDt")),
    }
)
"""at work, asleep, inside the kernel, held by a debugger, or not to be seen"""


def _up_to(longest: float) -> st.SearchStrategy[float]:
    return st.floats(2.5, longest)


@st.composite
def stalls(draw: st.DrawFn) -> tuple[Scene, float, float]:
    """A rank keeps the others waiting; for how long, and what their timeout is. The wall clock may
    have been set meanwhile."""
    timeout, seconds = draw(TIMEOUTS), draw(SECONDS.flatmap(_up_to))
    steps = draw(st.sampled_from([0, STEPS]))
    page = a_beat(
        step_at=NOW - seconds if steps else 0.0,
        steps=steps,
        usual_step=0.05 if steps else 0.0,
        group_timeout=timeout,
    )
    silent = draw(st.floats(0.0, seconds))
    pending = msgspec.structs.replace(entry(STEPS + 1, finished=False), timeout=timeout)
    culprit = {**draw(CULPRITS), "beat": page, "alive_at": NOW - silent}
    victim = {"beat": page, "recorder": waiting(pending), "alive_at": NOW - seconds}
    scene = held_up(
        {draw(st.integers(0, 3)): culprit}, seconds=seconds, victim=victim, started_at=NOW - seconds
    )
    set_by = draw(st.sampled_from([0.0, 3600.0, -3600.0, 30 * DAY]))
    return (
        msgspec.structs.replace(
            scene,
            evidence_wall=scene.evidence_wall + set_by,
            longest_pause=draw(st.floats(0, DAY)),
        ),
        seconds,
        timeout,
    )


def action(scene: Scene, policy: Policy, history: StallHistory | None = None) -> str:
    history = history or StallHistory()
    verdict = judge(scene, timers_since=history.timers_since)
    return decide(scene.now, scene, verdict, policy, history).action


POLICIES = st.builds(
    Policy, patience=st.none(), max_restarts=st.integers(0, 5), restarts_typed=st.booleans()
)


@given(stalls(), POLICIES, st.floats(0, 1))
def test_a_rank_that_sits_somewhere_is_never_ended_before_the_declared_timeout(
    stall: tuple[Scene, float, float], policy: Policy, seen: float
) -> None:
    scene, seconds, timeout = stall
    history = StallHistory(stalled_since=NOW - seen * seconds)
    if not timeout or seconds < wait_limit.act_after(timeout):
        assert action(scene, policy, history) == "go-on"


@given(stalls(), POLICIES)
def test_where_torch_would_not_abort_nothing_is_ended(
    stall: tuple[Scene, float, float], policy: Policy
) -> None:
    scene, _, timeout = stall
    pending = msgspec.structs.replace(
        entry(STEPS + 1, finished=False), timeout=timeout, backend="nccl"
    )
    views = [_waiting_in(view, pending) for view in scene.ranks]
    nccl = msgspec.structs.replace(scene, ranks=tuple(views))
    quiet = msgspec.structs.replace(policy, nccl_aborts=False)
    assert action(nccl, quiet) == "go-on"


def _waiting_in(view: RankView, pending: Any) -> RankView:
    waits = view.recorder == waiting(msgspec.structs.replace(pending, backend="gloo"))
    return msgspec.structs.replace(view, recorder=waiting(pending)) if waits else view


@given(stalls(), POLICIES, st.sampled_from([3600.0, -3600.0, 30 * DAY]))
def test_a_wall_clock_that_is_set_changes_no_decision(
    stall: tuple[Scene, float, float], policy: Policy, step: float
) -> None:
    """The ranks were seen to wait from the beginning."""
    scene, seconds, _ = stall
    history = StallHistory(stalled_since=NOW - seconds)
    later = msgspec.structs.replace(scene, evidence_wall=scene.evidence_wall + step)
    assert action(scene, policy, history) == action(later, policy, history)


@given(stalls(), POLICIES)
def test_clocks_that_have_just_been_started_again_end_nothing(
    stall: tuple[Scene, float, float], policy: Policy
) -> None:
    """The machine slept: whatever the ages say, none of it counts."""
    scene, _, _ = stall
    assert action(scene, policy, StallHistory(timers_since=NOW - 1)) == "go-on"


# --- restarts ------------------------------------------------------------------------------------

RESUMES = CheckpointAccount(
    resumed=(Resumed(attempt=0, step=0, path="", world_size=2, saved_world=0),)
)
ATTEMPTS = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 10_000), st.floats(0, DAY)), min_size=60,
    max_size=60,
)  # fmt: skip


def failed_attempt(rank: int, step: int, lasted: float, **changes: Any) -> Scene:
    page = a_beat(steps=step, step_at=NOW - 0.5 if step else 0.0)
    killed = msgspec.structs.replace(ended(rank, -signal.SIGKILL, at=NOW - 0.2), beat=page)
    other = msgspec.structs.replace(ended(1 - rank, 0), death=None, beat=page)
    scene = held_up({}, ranks=2, started_at=NOW - lasted - 1, **changes)
    return msgspec.structs.replace(scene, ranks=(killed, other))


def restarts(policy: Policy, attempts: list[tuple[int, int, float]]) -> tuple[int, list[int]]:
    """How many there are, and the furthest steps that attempts reached."""
    failures: tuple[Any, ...] = ()
    for number, (rank, step, lasted) in enumerate(attempts):
        scene = failed_attempt(rank, step, lasted, failures=failures, checkpoints=RESUMES)
        verdict = judge(scene)
        if decide(NOW, scene, verdict, policy, StallHistory()).action == "stop":
            return number, [failure.step for failure in failures]
        failures = (*failures, restart.failure_of(scene, verdict))
    return len(attempts), [failure.step for failure in failures]


@given(st.integers(0, 6), ATTEMPTS)
def test_a_typed_number_of_restarts_is_never_exceeded(
    allowed: int, attempts: list[tuple[int, int, float]]
) -> None:
    policy = Policy(patience=None, max_restarts=allowed, restarts_typed=True)
    assert restarts(policy, attempts)[0] <= allowed


@given(ATTEMPTS)
def test_by_default_only_a_step_further_than_ever_is_free(
    attempts: list[tuple[int, int, float]],
) -> None:
    count, steps = restarts(Policy(patience=None, max_restarts=3), attempts)
    records = sum(step > max(steps[:n]) for n, step in enumerate(steps) if n)
    assert count <= 3 + records
