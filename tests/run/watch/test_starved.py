"""Who is named, and what is done, when ranks get no core."""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.job import cpu_starvation
from holdfast.analysis.scene.cpu import CpuLook
from holdfast.analysis.scene.scene import Policy, RankView, Scene
from holdfast.run.watch import decide
from holdfast.run.watch.verdict import judge
from tests.cli.holdfast_command import wait_until
from tests.faults.collectives.test_slow_rank import pace
from tests.run.scenes import NOW, a_beat, a_rank, an_activity, changed, held_up
from tests.run.starving import looks, slower, starved
from tests.run.watch.test_watch import watching
from tests.run.watched import process

STUCK = held_up({2: {}})
LATE = pace(lambda rank, n: 0.2 if rank == 2 else 0.001 * rank)
"""rank 2 comes last to every collective"""


def late(got: float, *, best: float) -> Scene:
    scene = LATE
    for rank in range(4):
        scene = changed(scene, rank, beat=a_beat(usual_step=0.25))
    return starved(scene, {2: got}, best_step=best)


def said(scene: Scene) -> tuple[str, tuple[int, ...]] | None:
    verdict = judge(scene)
    return (verdict.slug, verdict.ranks) if verdict else None


@pytest.mark.parametrize(
    ("scene", "wanted"),
    [
        (STUCK, ("rank-stuck", (2,))),
        (starved(STUCK, {2: 0.05}), ("cpu-contention", ())),
        # it had 3 s of a core, and its steps take 50 ms: the wait has another reason
        (starved(STUCK, {2: 0.5}), ("rank-stuck", (2,))),
        # its beat is old because the beat's thread got no core either
        (
            starved(
                changed(STUCK, 2, beat=a_beat(step_at=NOW - 6, beat_at=NOW - 5), alive_at=NOW),
                {2: 0.05},
            ),
            ("cpu-contention", ()),
        ),
        (late(1.0, best=0.05), ("slow-rank", (2,))),
        (late(0.2, best=0.05), ("cpu-contention", ())),
        # half of what it asked for does not make it five times slower
        (late(0.5, best=0.05), ("slow-rank", (2,))),
        # what is certain stays so
        (
            starved(
                held_up({2: {"activity": an_activity(state="T"), "state_since": NOW - 4}}),
                {2: 0.05},
            ),
            ("rank-frozen", (2,)),
        ),
    ],
)
def test_who_is_named(scene: Scene, wanted: tuple[str, tuple[int, ...]]) -> None:
    assert said(scene) == wanted


@pytest.mark.parametrize("patience", [None, 1.0])
def test_nothing_is_done_about_it(patience: float | None) -> None:
    scene = starved(STUCK, {2: 0.05})
    found = judge(scene)
    policy = Policy(patience=patience, max_restarts=3)
    history = decide.remember(NOW, scene, found, decide.StallHistory())
    assert decide.decide(NOW, scene, found, policy, history).action == "go-on"


def test_three_ranks_on_one_core_are_seen_to_wait_for_it(tmp_path: Path) -> None:
    """Real processes at work; their pages say that steps take four times as long as at first."""
    core = min(os.sched_getaffinity(0))
    text = f"import os; os.sched_setaffinity(0, {{{core}}})\nprint('here', flush=True)\nwhile 1: 0"
    with watching(tmp_path) as made, process(text) as a, process(text) as b, process(text) as c:
        pids = [a.pid, b.pid, c.pid]
        made.start(*pids)
        pages = [made.page(rank) for rank in range(3)]
        for page, pid in zip(pages, pids, strict=True):
            page.announce(pid)

        def told_after(steps: int, usual: float) -> list[dict[str, object]]:
            for page in pages:
                page.step(steps, at=time.monotonic_ns(), usual=int(usual * 1e9))
            made.watch.look()
            return [r for r in made.records() if r["kind"] in ("notice", "verdict")]

        try:
            assert told_after(10, 0.05) == []
            count = itertools.count(11)
            wait_until(lambda: bool(told_after(next(count), 0.2)), seconds=60)
            (notice,) = told_after(next(count), 0.2)
        finally:
            for page in pages:
                page._words.release()
    assert (notice["kind"], notice["slug"], notice["ranks"]) == ("notice", "cpu-contention", [])
    assert "the ranks got" in str(notice["reason"])
    assert "1 core, 3 ranks that need" in str(notice["reason"])


def test_a_loader_that_ends_gives_no_time_back() -> None:
    sums = [(0.0, 0.0), (0.5, 0.5), (0.2, 0.1), (0.7, 0.6)]
    made = tuple(CpuLook(at=NOW - 3 + n, ran=r, queued=q) for n, (r, q) in enumerate(sums))
    share = cpu_starvation.share([a_rank(0, looks=made)], since=NOW - 10)
    assert (share.seconds, share.ran, share.queued) == (3.0, 1.0, 1.0)


def test_the_whole_of_a_stall_is_looked_at() -> None:
    """From the look before it began; older ones tell of better times."""
    share = cpu_starvation.share([a_rank(0, looks=looks(0.5))], since=NOW - 2.5)
    assert (share.seconds, share.ran) == (3.0, 1.5)


COUNT = st.floats(0, 1e6, allow_nan=False)
LOOKS = st.lists(
    st.builds(CpuLook, at=st.floats(NOW - 60, NOW), ran=COUNT, queued=COUNT), max_size=8
).map(lambda made: tuple(sorted(made, key=lambda look: look.at)))


@given(st.lists(LOOKS, min_size=4, max_size=4), st.sampled_from([0.0, 0.01, 0.05]), st.booleans())
def test_any_counters_blame_nobody_and_are_never_certain(
    made: list[tuple[CpuLook, ...]], best: float, slow: bool
) -> None:
    scene = slower(dict.fromkeys(range(4), 1.0), best_step=best) if slow else starved(STUCK, {})
    views: list[RankView] = [
        msgspec.structs.replace(view, looks=seen)
        for view, seen in zip(scene.ranks, made, strict=True)
    ]
    found = judge(msgspec.structs.replace(scene, ranks=tuple(views)))
    if found is not None and found.slug == "cpu-contention":
        assert (found.ranks, found.certain, found.fatal) == ((), False, False)
    elif not slow:
        assert found is not None
        assert found.slug == "rank-stuck"
