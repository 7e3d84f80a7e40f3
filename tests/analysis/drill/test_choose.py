"""Which drills, on which rank, at which step."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.drill import choose
from holdfast.analysis.drill.rehearsal import DrillPlan, JobShape
from holdfast.errors import ConfigError
from holdfast.fault import Drill


def drill(name: str = "rank-killed", *, at_start: bool = False) -> Drill:
    return Drill(name, lambda rehearsal: None, (), False, at_start)  # type: ignore[arg-type, return-value]


def shape(steps: int = 60, saves: tuple[int, ...] = (20, 40, 60), ranks: int = 4) -> JobShape:
    return JobShape(ranks=ranks, steps=steps, saved_after=saves)


@st.composite
def shapes(draw: st.DrawFn) -> JobShape:
    steps = draw(st.integers(1, 300))
    every = draw(st.integers(1, steps + 5))
    hosts = draw(st.sampled_from([("",), ("alpha", "bravo"), ("alpha", "bravo", "carol")]))
    return JobShape(
        ranks=len(hosts) * draw(st.integers(1, 4)),
        steps=steps,
        saved_after=tuple(range(every, steps + 1, every)),
        hosts=hosts,
    )


@given(job=shapes())
def test_always_a_rank_and_a_step_of_the_job(job: JobShape) -> None:
    chosen = choose.rehearsal(DrillPlan(fault="rank-killed"), drill(), job)
    assert 1 <= chosen.at_step <= job.steps
    assert job.host_of(chosen.rank) == job.hosts[-1]
    if job.ranks > 1:
        assert chosen.rank != 0
    if job.steps >= 2:
        assert chosen.at_step <= job.steps - job.steps // 10


@given(job=shapes())
def test_some_steps_after_a_checkpoint_or_a_remark(job: JobShape) -> None:
    chosen = choose.rehearsal(DrillPlan(fault="rank-killed"), drill(), job)
    since = [chosen.at_step - saved for saved in job.saved_after if saved < chosen.at_step]
    if choose.remark(job):
        return
    assert since
    assert 1 <= min(since) <= choose.STEPS_SINCE


@pytest.mark.parametrize(
    ("job", "step"),
    [
        (shape(), 43),  # 23 is as near the middle, but has only one checkpoint before it
        (shape(saves=(20, 50)), 53),
        (shape(saves=(30,)), 33),
        (shape(steps=100, saves=(10, 50, 90)), 53),
        (shape(saves=(2, 4, 6, 8)), 11),  # the only save with three steps behind it
        (shape(steps=10, saves=tuple(range(1, 11))), 5),
        (shape(saves=()), 30),
        (shape(saves=(60,)), 30),
        (shape(steps=1, saves=()), 1),
    ],
)
def test_the_step(job: JobShape, step: int) -> None:
    chosen = choose.rehearsal(DrillPlan(fault="rank-killed"), drill(), job)
    assert chosen.at_step == step


def test_what_the_job_cannot_show_is_said() -> None:
    assert choose.remark(shape()) == ""
    assert "no checkpoint" in choose.remark(shape(saves=()))
    assert "after every step" in choose.remark(shape(steps=10, saves=tuple(range(1, 11))))
    assert "after step 60 of 60" in choose.remark(shape(saves=(60,)))


def test_what_was_asked_for_is_taken() -> None:
    plan = DrillPlan(fault="rank-killed", rank=0, at_step=7)
    chosen = choose.rehearsal(plan, drill(), shape())
    assert (chosen.rank, chosen.at_step) == (0, 7)


def test_before_the_start() -> None:
    chosen = choose.rehearsal(DrillPlan(fault="x"), drill(at_start=True), shape())
    assert chosen.at_step == 0


def test_the_store_is_where_rank_0_is() -> None:
    chosen = choose.rehearsal(DrillPlan(fault="x"), drill("store-host-lost"), shape())
    assert chosen.rank == 0


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (DrillPlan(fault="x", rank=4), "rank 4 is out of range for world_size 4"),
        (DrillPlan(fault="x", rank=-1), "rank -1 is out of range"),
        (DrillPlan(fault="x", at_step=61), "at_step must be between 0 and 60"),
    ],
)
def test_what_the_job_does_not_have(plan: DrillPlan, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        choose.rehearsal(plan, drill(), shape())


# --- which drills --------------------------------------------------------------------------------

OFFERED = {
    "checkpoint-corrupt": False,
    "checkpoint-corrupt/truncated": False,
    "checkpoint-incomplete": True,
    "disk-full": False,
    "rank-killed": True,
}


@pytest.mark.parametrize(
    ("asked", "everything", "names"),
    [
        ([], False, ["checkpoint-incomplete", "rank-killed"]),
        ([], True, ["checkpoint-incomplete", "rank-killed", "checkpoint-corrupt",
                    "checkpoint-corrupt/truncated", "disk-full"]),
        (["disk-full,rank-killed"], False, ["rank-killed", "disk-full"]),
        (["checkpoint-corrupt"], False, ["checkpoint-corrupt", "checkpoint-corrupt/truncated"]),
        (["checkpoint-corrupt/truncated"], False, ["checkpoint-corrupt/truncated"]),
        (["checkpoint-*"], False, ["checkpoint-incomplete", "checkpoint-corrupt",
                                   "checkpoint-corrupt/truncated"]),
        (["disk-full", "disk-full"], False, ["disk-full"]),
    ],
)  # fmt: skip
def test_the_drills(asked: list[str], everything: bool, names: list[str]) -> None:
    assert choose.names(OFFERED, asked, everything=everything) == names


def test_a_name_that_no_drill_has() -> None:
    with pytest.raises(ConfigError) as raised:
        choose.names(OFFERED, ["rank-kiled"])
    assert raised.value.sentence == "no drill is called 'rank-kiled'"
    assert "rank-killed" in raised.value.hint
    with pytest.raises(ConfigError) as raised:
        choose.names(OFFERED, ["zzz"])
    assert "disk-full" in raised.value.hint
