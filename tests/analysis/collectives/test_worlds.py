"""Several worlds in one job are never taken for one; ranks outside of them are in none."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.collectives import standstills, worlds
from holdfast.analysis.collectives.own_numbers import told_apart
from holdfast.analysis.collectives.waits import Waits, analyse
from holdfast.analysis.job import pace
from holdfast.analysis.scene.scene import Death, RankView, Recorder, Scene, Stack
from holdfast.run.watch.verdict import consider, judge
from holdfast.view.run_screen import status
from tests.analysis.collectives.meshes import Mesh, Op, Play, again
from tests.analysis.collectives.worlds_made import (
    GIVEN,
    HERE,
    THERE,
    a_claim,
    member,
    outside,
    renumbered,
    together,
    with_members,
)
from tests.run.scenes import (
    IN_BACKWARD,
    IN_SLEEP,
    NOW,
    STARTED,
    WALL,
    a_beat,
    a_rank,
    a_recorder,
    a_scene,
    elsewhere,
    ended,
    entry,
    held_up,
    waiting,
    words,
)

THEN = NOW - 6.0
WAITS: dict[str, Any] = {
    "recorder": waiting(), "stack": IN_BACKWARD, "alive_at": THEN, "beat": a_beat(step_at=THEN),
}  # fmt: skip
SLEEPS: dict[str, Any] = {
    "recorder": elsewhere(), "stack": IN_SLEEP, "alive_at": THEN, "beat": a_beat(step_at=THEN),
}  # fmt: skip
LATER = {"evidence_at": NOW - 0.1, "evidence_wall": WALL + 60.0}


def a_hang(*views: RankView, **changes: Any) -> Scene:
    return a_scene(views, **{**LATER, **changes})


def of_size(size: int, **changes: Any) -> dict[str, Any]:
    shape = f"[{size}] Float"
    past = [entry(n, shape=shape) for n in range(1, 50)]
    return {
        **WAITS,
        "recorder": a_recorder(*past, entry(50, shape=shape, finished=False)),
        **changes,
    }


# --- which ranks belong together ---------------------------------------------------------------


def ranks_of(scene: Scene) -> list[tuple[int, ...]]:
    return [tuple(view.rank for view in part.ranks) for part in worlds.parts(scene)]


@pytest.mark.parametrize(
    ("views", "expected"),
    [
        # one world, all of it; without claims; by the launcher's store; by another
        ([a_rank(r) for r in range(4)], [(0, 1, 2, 3)]),
        ([member(r, r, 4, GIVEN) for r in range(4)], [(0, 1, 2, 3)]),
        ([member(r, 3 - r, 4, HERE) for r in range(4)], [(0, 1, 2, 3)]),
        # two pairs; four worlds of one; one of three and a coordinator
        ([member(r, r % 2, 2, HERE if r < 2 else THERE) for r in range(4)], [(0, 1), (2, 3)]),
        ([member(r, 0, 1, HERE) for r in range(4)], [(0,), (1,), (2,), (3,)]),
        ([outside(0), *(member(r, r - 1, 3, HERE) for r in (1, 2, 3))], [(1, 2, 3), (0,)]),
        # one has not come yet: it is known which where all others have their worlds
        ([outside(0), *(member(r, r, 4, GIVEN) for r in (1, 2, 3))], [(0, 1, 2, 3)]),
        ([outside(0), member(1, 0, 2, HERE), member(2, 0, 1, THERE)], [(0, 1), (2,)]),
        ([outside(0), outside(1), member(2, 0, 2, HERE)], [(2,), (0,), (1,)]),
        # the same store, written differently; one store that serves two worlds by prefixes
        ([member(0, 0, 2, "localhost:7"), member(1, 1, 2, "node-a:7")], [(0, 1)]),
        ([member(r, r % 2, 2, "a:7" if r < 2 else "b:7") for r in range(4)], [(0, 1), (2, 3)]),
        ([member(r, r % 2, 2, HERE) for r in range(4)], [(0,), (1,), (2,), (3,)]),
        ([member(r, r % 2, 2, "") for r in range(4)], [(0,), (1,), (2,), (3,)]),
        # one without a page, among others that have one
        ([*(member(r, r, 4, GIVEN) for r in range(3)), a_rank(3, beat=None)], [(0, 1, 2, 3)]),
        # numbers that cannot be: rank-assignment names them
        ([member(0, 5, 2, GIVEN), member(1, 1, 2, GIVEN)], [(0, 1)]),
    ],
)  # fmt: skip
def test_which_ranks_belong_together(
    views: list[RankView], expected: list[tuple[int, ...]]
) -> None:
    assert sorted(ranks_of(a_scene(views))) == sorted(expected)


def test_a_job_of_one_world_is_looked_at_as_it_is() -> None:
    scene = a_scene([member(r, r, 4, GIVEN) for r in range(4)])
    assert worlds.parts(scene) == (scene,)
    assert worlds.parts(scene)[0] is scene


def test_a_world_that_left_its_group_is_still_its_world() -> None:
    """It destroyed the group and exited, and others wait for it there."""
    left = ended(1, 0, at=NOW - 5.0)
    assert left.beat is not None
    gone = msgspec.structs.replace(
        left.beat, group_ready=False, former_claim=a_claim(1, 2, HERE), claim=None
    )
    views = [member(0, 0, 2, HERE, **WAITS), msgspec.structs.replace(left, beat=gone)]
    others = [member(r, r - 2, 2, THERE) for r in (2, 3)]
    verdict = judge(a_hang(*views, *others))
    assert verdict is not None
    assert (verdict.slug, verdict.ranks, verdict.victims) == ("rank-exits-early", (1,), (0,))


# --- two pairs ---------------------------------------------------------------------------------


def test_worlds_with_other_sizes_do_not_disagree() -> None:
    scene = a_hang(
        *(member(r, r, 2, HERE, **of_size(4)) for r in (0, 1)),
        *(member(r, r - 2, 2, THERE, **of_size(8)) for r in (2, 3)),
    )
    assert consider(scene) == (None, ())


def test_a_mismatch_inside_a_world_names_that_world() -> None:
    scene = a_hang(
        *(member(r, r, 3, HERE, **of_size(4)) for r in (0, 1, 2)),
        *(member(r, r - 3, 3, THERE, **of_size(8)) for r in (3, 4)),
        member(5, 2, 3, THERE, **of_size(9)),
    )
    verdict = judge(scene)
    assert verdict is not None
    assert (verdict.slug, verdict.ranks, verdict.victims) == ("collective-mismatch", (5,), (3, 4))
    assert f"in collective #50 of the world at {THERE}" in verdict.reason
    assert verdict.certain


def test_the_rank_that_its_own_world_waits_for_is_named_while_the_other_trains_on() -> None:
    scene = a_hang(
        *(member(r, r, 2, HERE) for r in (0, 1)),
        member(2, 0, 2, THERE, **WAITS),
        member(3, 1, 2, THERE, **SLEEPS),
    )
    assert pace.stalled(scene)
    verdict = judge(scene)
    assert verdict is not None
    assert (verdict.slug, verdict.ranks, verdict.victims) == ("rank-stuck", (3,), (2,))
    assert f"rank 2 waits for it in all_reduce #101 of the world at {THERE}" in verdict.reason


def test_members_that_nccl_tells_are_numbers_of_the_world() -> None:
    told = {"0": (0, 1)}
    scene = a_hang(
        *(member(r, r, 2, HERE) for r in (0, 1)),
        member(2, 1, 2, THERE, **{**WAITS, "recorder": with_members(waiting(), told)}),
        member(3, 0, 2, THERE, **{**SLEEPS, "recorder": with_members(elsewhere(), told)}),
    )
    part = worlds.parts(scene)[1]
    assert [v.recorder.members for v in part.ranks if isinstance(v.recorder, Recorder)] == [
        {"0": (3, 2)},
        {"0": (3, 2)},
    ]
    assert analyse(scene).roots == (3,)


def test_what_a_rank_waits_for_by_its_own_word_is_a_number_of_its_world() -> None:
    told = {**SLEEPS, "recorder": a_recorder(), "beat": a_beat(step_at=THEN, waits_for=0)}
    scene = a_hang(
        *(member(r, r, 2, HERE) for r in (0, 1)),
        member(2, 1, 2, THERE, **told),
        member(3, 0, 2, THERE, **SLEEPS),
    )
    assert (analyse(scene).roots, analyse(scene).victims) == ((3,), (2,))


def test_where_prefixes_hide_the_worlds_no_rank_is_compared_with_another() -> None:
    scene = a_hang(*(member(r, r % 2, 2, HERE, **of_size(4 + 4 * (r // 2))) for r in range(4)))
    assert consider(scene) == (None, ())


def test_what_ended_first_is_the_cause_whichever_world_it_is_in() -> None:
    """A learner in its own world loses the queue of an actor that was killed."""
    actor = member(0, 0, 1, HERE, death=Death(code=-9, at=NOW - 2.0), activity=None)
    learner = member(1, 0, 1, THERE, words=words("EOFError", at=NOW - 1.9))
    verdict = judge(a_scene([actor, learner]))
    assert verdict is not None
    assert (verdict.slug, verdict.ranks) == ("rank-killed", (0,))


# --- worlds of one, and ranks in none ----------------------------------------------------------


@pytest.mark.parametrize("before", [0.05, 2.0])
def test_a_world_of_one_that_fails_is_its_own_failure(before: float) -> None:
    """The others have their own; one of them has just finished well."""
    finished = member(0, 0, 1, HERE, death=Death(code=0, at=NOW - 1.0 - before), activity=None)
    failed = member(1, 0, 1, HERE, death=Death(code=1, at=NOW - 1.0), activity=None)
    busy = [member(r, 0, 1, HERE, **of_size(r)) for r in (2, 3)]
    verdict = judge(a_scene([finished, failed, *busy]))
    assert verdict is not None
    assert (verdict.slug, verdict.ranks, verdict.victims) == ("python-exception", (1,), ())


def test_a_coordinator_that_sleeps_is_not_the_one_without_a_recorder() -> None:
    idle = outside(0, stack=IN_SLEEP, alive_at=STARTED)
    scene = a_hang(idle, *(member(r, r - 1, 3, HERE, **WAITS) for r in (1, 2, 3)))
    assert consider(scene) == (None, ())
    working = a_hang(idle, *(member(r, r - 1, 3, HERE) for r in (1, 2, 3)))
    assert not pace.stalled(working)
    assert consider(working) == (None, ())


def test_a_coordinator_is_not_missing_from_the_group() -> None:
    beat = a_beat(steps=0, step_at=0.0)
    views = [member(r, r - 1, 3, HERE, beat=beat) for r in (1, 2, 3)]
    assert status(a_scene([outside(0), *views])).startswith("4 ranks waiting for the first step")
    late = a_scene([outside(0), *(member(r, r, 4, GIVEN, beat=beat) for r in (1, 2, 3))])
    assert status(late) == "3 of 4 ranks in the group, missing 0"


def test_the_only_world_of_several_ranks_needs_no_name() -> None:
    scene = a_hang(outside(0), member(1, 0, 2, HERE, **WAITS), member(2, 1, 2, HERE, **SLEEPS))
    verdict = judge(scene)
    assert verdict is not None
    assert verdict.reason.endswith("rank 1 waits for it in all_reduce #101")


def test_a_member_that_never_came_is_named_where_the_others_lack_it() -> None:
    late = outside(0, stack=IN_SLEEP, alive_at=THEN)
    scene = a_hang(late, *(member(r, r, 4, GIVEN, **WAITS) for r in (1, 2, 3)))
    verdict = judge(scene)
    assert verdict is not None
    assert (verdict.slug, verdict.ranks, verdict.victims) == ("rank-stuck", (0,), (1, 2, 3))


# --- groups that were destroyed and made again -------------------------------------------------


def made_again(number: int, *collectives: Any, claim: dict[str, Any], **view: Any) -> RankView:
    old = [entry(n, created=WALL + n * 0.001) for n in range(990, 1001)]
    recorder = a_recorder(*old, *collectives)
    claims = {"first": False, "remade": 1, "wall": WALL + 10.0, "at": NOW - 50.0, **claim}
    return member(number, number, 3, GIVEN, **{**view, "recorder": recorder, "claims": claims})


@pytest.mark.parametrize(
    ("step_of_clock", "named"), [(0.0, (2,)), (2.0, (2,)), (3600.0, (2,)), (-3600.0, ())]
)
def test_a_rank_that_has_not_come_to_the_new_group_is_not_taken_for_the_old_one(
    step_of_clock: float, named: tuple[int, ...]
) -> None:
    """Its ring holds nothing of the new group. A clock that was set back since may hide that, and
    then nothing is said: no collective of the new group may be taken for an old one."""
    wall = WALL + 10.0 + (NOW - 0.1 - (NOW - 50.0))
    first = entry(1, finished=False, created=WALL + 20.0)
    quiet = {"alive_at": THEN, "beat": a_beat(step_at=THEN)}
    waits: dict[str, Any] = {"stack": IN_BACKWARD, **quiet, "claim": {}}
    old_only: dict[str, Any] = {"stack": IN_SLEEP, **quiet, "claim": {}}
    views = [
        msgspec.structs.replace(made_again(n, first, **waits), recorder=a_recorder(first))
        for n in (0, 1)
    ]
    scene = a_hang(*views, made_again(2, **old_only), evidence_wall=wall + step_of_clock)
    assert analyse(scene).roots == named


def test_a_rank_that_made_the_group_again_alone_is_missing_from_the_old_one() -> None:
    claims = {"first": False, "remade": 1, "wall": WALL + 50.0, "at": NOW - 10.0}
    alone = {**SLEEPS, "recorder": a_recorder(entry(1, finished=False)), "claims": claims}
    scene = a_hang(
        member(0, 0, 3, GIVEN, **alone),
        *(member(r, r, 3, GIVEN, **WAITS) for r in (1, 2)),
    )
    assert ranks_of(scene) == [(0, 1, 2)]
    assert (analyse(scene).roots, analyse(scene).victims) == ((0,), (1, 2))
    assert analyse(scene).mismatch is None


def test_a_rank_that_stayed_in_the_old_group_is_missing_from_the_new_one() -> None:
    claims = {"first": False, "remade": 1, "wall": WALL, "at": NOW - 10.0}
    first = a_recorder(entry(1, finished=False, created=WALL + 50.0))
    scene = a_hang(
        *(member(r, r, 3, GIVEN, **{**WAITS, "recorder": first, "claims": claims}) for r in (0, 1)),
        member(2, 2, 3, GIVEN, **SLEEPS),
    )
    assert (analyse(scene).roots, analyse(scene).victims) == ((2,), (0, 1))


# --- any two worlds ----------------------------------------------------------------------------

OPS = st.builds(
    Op, axis=st.sampled_from(["world", "dp", "tp"]), size=st.sampled_from([4, 8]),
    ahead=st.booleans(),
)  # fmt: skip


@st.composite
def a_play(draw: st.DrawFn) -> Play:
    mesh = draw(st.sampled_from([Mesh(1, 2), Mesh(2, 1), Mesh(2, 2), Mesh(1, 3)]))
    step = draw(st.lists(OPS, min_size=1, max_size=4))
    program = again(step, 3)
    return Play(
        mesh=mesh,
        program=program,
        step=len(step),
        culprit=draw(st.sampled_from(mesh.ranks)),
        stops_at=draw(st.integers(0, len(program) + 1)),
        size=draw(st.sampled_from([0, 0, 7])),
    )


def renamed(seen: Waits, ranks: list[int]) -> tuple[Any, ...]:
    """What was found, with other rank numbers."""

    def to(numbers: Any) -> tuple[int, ...]:
        return tuple(sorted(ranks[n] for n in numbers))

    mismatch = seen.mismatch
    return (
        {(ranks[w.rank], w.place, to(w.absent), to(w.gone), w.seconds) for w in seen.waits},
        to(seen.roots),
        to(seen.victims),
        to(seen.deadlock),
        mismatch and (mismatch.sequence, mismatch.group, to(mismatch.odd), to(mismatch.right)),
    )


@given(a_play(), a_play(), st.data())
def test_two_worlds_together_are_what_each_is_alone(
    one: Play, other: Play, data: st.DataObject
) -> None:
    scenes = [one.scene(), other.scene()]
    count = sum(len(scene.ranks) for scene in scenes)
    ranks = data.draw(st.permutations(range(count)))
    own = [ranks[: len(scenes[0].ranks)], ranks[len(scenes[0].ranks) :]]
    job = together(
        *(renumbered(s, r, w) for s, r, w in zip(scenes, own, (HERE, THERE), strict=True)),
        like=scenes[0],
    )
    alone = [renamed(analyse(scene), numbers) for scene, numbers in zip(scenes, own, strict=True)]
    seen = renamed(analyse(job), list(range(count)))
    assert seen[0] == alone[0][0] | alone[1][0]
    assert seen[1] == tuple(sorted(alone[0][1] + alone[1][1]))
    assert seen[2] == tuple(sorted(alone[0][2] + alone[1][2]))
    assert seen[3] in (alone[0][3] or alone[1][3], alone[1][3] or alone[0][3])
    assert seen[4] in (alone[0][4] or alone[1][4], alone[1][4] or alone[0][4])
    verdicts = [(v, own[i]) for i, scene in enumerate(scenes) if (v := judge(scene)) is not None]
    said = judge(job)
    if said is None:
        assert not verdicts
    else:
        assert (said.slug, sorted(said.ranks)) in [
            (v.slug, sorted(numbers[r] for r in v.ranks)) for v, numbers in verdicts
        ]


@given(a_play(), st.data())
def test_other_numbers_change_nothing_but_the_names(play: Play, data: st.DataObject) -> None:
    """A script may number its ranks otherwise than the launcher, as by host or by GPU."""
    scene = play.scene()
    ranks = data.draw(st.permutations(range(len(scene.ranks))))
    job = together(renumbered(scene, ranks, GIVEN), like=scene)
    seen = renamed(analyse(job), list(range(len(ranks))))
    assert seen == renamed(analyse(scene), list(ranks))


# --- cost --------------------------------------------------------------------------------------


@pytest.mark.parametrize("stack", [IN_BACKWARD, None])
def test_many_ranks_are_compared_group_by_group(stack: Stack | None) -> None:
    """Counted, not timed: how often the recorders' positions are read."""
    reads = 0

    class Counting(dict[str, int]):
        def get(self, *args: Any) -> Any:
            nonlocal reads
            reads += 1
            return super().get(*args)

    def counted(view: RankView) -> RankView:
        assert isinstance(view.recorder, Recorder)
        entered = Counting(view.recorder.entered)
        recorder = msgspec.structs.replace(view.recorder, entered=entered)
        return msgspec.structs.replace(view, recorder=recorder)

    scene = held_up({7: {}}, ranks=512, victim={"stack": stack})
    views = tuple(map(counted, scene.ranks))
    assert analyse(msgspec.structs.replace(scene, ranks=views)).roots == (7,)
    assert reads < 20 * len(views)


# --- what is left of them ----------------------------------------------------------------------


def test_recorders_of_several_worlds_are_told_apart_once_a_run_is_over() -> None:
    scene = a_hang(
        *(member(r, r, 2, HERE, **of_size(4)) for r in (0, 1)),
        member(2, 1, 2, THERE, **of_size(8)),
        member(3, 0, 2, THERE, **{**SLEEPS, "recorder": a_recorder(entry(49, shape="[8] Float"))}),
    )
    found = {v.rank: v.recorder for v in scene.ranks if isinstance(v.recorder, Recorder)}
    told = worlds.several(scene)
    assert told == {f"the world at {HERE}": (0, 1), f"the world at {THERE}": (3, 2)}
    mixed, apart = standstills.take(found), standstills.take(told_apart(found, told))
    assert mixed.mismatch is not None
    assert (apart.mismatch, apart.roots, apart.victims) == (None, (3,), (2,))


def test_one_world_is_not_worth_a_word() -> None:
    assert worlds.several(a_scene()) == {}
    assert worlds.several(a_scene([member(r, r, 4, GIVEN) for r in range(4)])) == {}
    with_coordinator = a_scene([outside(0), member(1, 0, 2, HERE), member(2, 1, 2, HERE)])
    assert list(worlds.several(with_coordinator).values()) == [(1, 2)]
