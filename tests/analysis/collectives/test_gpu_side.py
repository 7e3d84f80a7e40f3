"""Which rank the GPUs wait for, when the scripts have run ahead of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import pytest

from holdfast.analysis.collectives import gpu_side, waits
from holdfast.analysis.scene.scene import Death, Scene, Stack
from tests.analysis.collectives.nccl_documents import WALL, Written
from tests.run.scenes import IN_BACKWARD, IN_SLEEP, NOW, TORCH, a_beat, a_rank, a_scene, a_stack

MESH = {"dp 0,2": (0, 2), "dp 1,3": (1, 3), "tp 0,1": (0, 1), "tp 2,3": (2, 3)}
IN_STEP = a_stack(("main", "/home/me/train.py", 40))
"""of a script that waits in loss.item(), or runs ahead: no frame shows which"""
IN_ALL_REDUCE = a_stack(
    ("all_reduce", f"{TORCH}/distributed/distributed_c10d.py", 3068),
    ("train", "/home/me/train.py", 30),
)


def a_job(
    written: Sequence[Written], stacks: Mapping[int, Stack] | None = None, *, later: float = 30.0
) -> Scene:
    """No step for five seconds; the evidence was taken so long after the first collective."""
    return a_scene(
        [
            a_rank(
                rank,
                recorder=one.recorder(),
                stack=(stacks or {}).get(rank, IN_STEP),
                beat=a_beat(step_at=NOW - 5),
            )
            for rank, one in enumerate(written)
        ],
        evidence_at=NOW,
        evidence_wall=WALL + later,
    )


def ahead(*states: str) -> Written:
    written = Written().past(3)
    for state in states:
        written.collective(state)
    return written


def stage(rank: int, *states: str, last: int = 3) -> Written:
    """Of a pipeline: a batch with each neighbour in turn."""
    written = Written()
    for number, state in enumerate(states):
        peer = rank - 1 if (number % 2 or rank == last) and rank else rank + 1
        written.batch(state, f"send {rank}->{peer}", f"recv {rank}<-{peer}")
    return written


@pytest.mark.parametrize(
    ("stuck", "others", "roots"),
    [
        # (what rank 2 recorded after #3, what the others did, whom they wait for)
        (("scheduled",), ("started",), (2,)),
        (("scheduled", "scheduled"), ("started", "scheduled", "scheduled"), (2,)),
        ((), ("started", "scheduled"), (2,)),
        (("started",), ("started",), ()),
        (("retired",), ("started",), ()),
        (("scheduled",), ("scheduled",), ()),
        (("completed",), ("started",), ()),
    ],
    ids=["kernel", "ahead", "sleeps", "all in it", "one is over", "all behind", "in the call"],
)
def test_the_gpu_that_has_not_started_is_waited_for(
    stuck: tuple[str, ...], others: tuple[str, ...], roots: tuple[int, ...]
) -> None:
    scene = a_job([ahead(*(stuck if rank == 2 else others)) for rank in range(4)])
    assert waits.analyse(scene).roots == roots
    assert waits.analyse(scene).victims == ((0, 1, 3) if roots else ())


def test_without_timing_ranks_that_entered_it_look_alike() -> None:
    written = [Written(timed=False).past(3).collective("scheduled") for _ in range(4)]
    assert all(c.started is None for one in written for c in one.recorder().collectives)
    assert waits.analyse(a_job(written)).roots == ()


def test_nccl_groups_since_torch_2_15_do_not_tell_when_a_gpu_comes() -> None:
    """They are recorded from outside: what is over has a start, what runs has none yet."""
    written = Written(backend="nccl2").past(3).collective("scheduled")
    recorder = written.recorder()
    assert (recorder.entered, recorder.finished) == ({"0": 4}, {"0": 3})
    assert {c.started for c in recorder.collectives} == {None}
    assert gpu_side.not_started(recorder) is None
    assert gpu_side.has_reached(recorder, "0", 4)


def test_a_script_that_sleeps_while_its_gpu_waits_is_not_the_cause() -> None:
    """It ran ahead and is between two steps: only the GPU of rank 2 is late."""
    written = [ahead("scheduled" if rank == 2 else "started") for rank in range(4)]
    assert waits.analyse(a_job(written, {1: IN_SLEEP})).roots == (2,)


def test_a_script_held_up_inside_a_collective_by_its_own_gpu_does_not_wait_for_others() -> None:
    """CUDA takes no more launches: the script stands in all_reduce, as one that waits would."""
    written = [ahead("scheduled" if rank == 2 else "started") for rank in range(4)]
    seen = waits.analyse(a_job(written, {2: IN_ALL_REDUCE}))
    assert (seen.roots, seen.of(2)) == ((2,), None)


def test_a_late_gpu_is_followed_across_the_groups_of_a_mesh() -> None:
    def rank_of_mesh(dp: str, tp: str, own: Mapping[str, str]) -> Written:
        written = Written(MESH)
        for group in (dp, tp):
            written.past(2, group=group).collective(own[group], group=group)
        return written

    seen = waits.analyse(
        a_job(
            [
                rank_of_mesh("dp 0,2", "tp 0,1", {"dp 0,2": "started", "tp 0,1": "scheduled"}),
                rank_of_mesh("dp 1,3", "tp 0,1", {"dp 1,3": "started", "tp 0,1": "scheduled"}),
                rank_of_mesh("dp 0,2", "tp 2,3", {"dp 0,2": "scheduled", "tp 2,3": "scheduled"}),
                rank_of_mesh("dp 1,3", "tp 2,3", {"dp 1,3": "scheduled", "tp 2,3": "started"}),
            ]
        )
    )
    assert (seen.roots, seen.victims) == ((2,), (0, 1, 3))


@pytest.mark.parametrize(
    "stuck", [("retired", "scheduled"), ("retired", "retired")], ids=["kernel", "sleeps"]
)
@pytest.mark.parametrize("later", [(), ("scheduled",) * 6], ids=["", "ahead"])
def test_a_stage_that_never_comes_is_named_and_not_its_neighbours(
    stuck: tuple[str, ...], later: tuple[str, ...]
) -> None:
    scene = a_job(
        [
            Written().batch("started", "send 0->1", "recv 0<-1"),
            stage(1, "started", *later),
            Written().batch(stuck[0], "recv 2<-1").batch(stuck[1], "send 2->3"),
            Written().batch("started", "recv 3<-2"),
        ]
    )
    seen = waits.analyse(scene)
    assert (seen.roots, seen.victims, seen.deadlock) == ((2,), (0, 1, 3), ())
    assert [wait.title for wait in seen.waits] == [
        "send to and recv from rank 1",
        "send to and recv from rank 2",
        "recv from rank 2",
    ]


def test_without_timing_a_sleeping_stage_is_named_by_the_messages_nobody_answers() -> None:
    """Rank 1 has asked for both neighbours, and only one of them has an open message for it."""
    scene = a_job(
        [
            Written(timed=False).batch("scheduled", "send 0->1"),
            Written(timed=False).batch("scheduled", "recv 1<-0").batch("scheduled", "send 1->2"),
            Written(timed=False).batch("retired", "recv 2<-1"),
            Written(timed=False).batch("scheduled", "recv 3<-2"),
        ]
    )
    assert waits.analyse(scene).roots == (2,)


def test_pipelines_side_by_side_blame_only_the_rank_that_sleeps() -> None:
    """Two stages, two replicas: rank 1 sleeps, and the gradients of all wait in turn."""
    groups = {"pp 0,1": (0, 1), "pp 2,3": (2, 3), "dp 0,2": (0, 2), "dp 1,3": (1, 3)}
    scene = a_job(
        [
            Written(groups)
            .batch("started", "send 0->1", "recv 0<-1", group="pp 0,1")
            .collective("scheduled", group="dp 0,2"),
            Written(groups).batch("retired", "recv 1<-0", group="pp 0,1"),
            Written(groups)
            .batch("retired", "send 0->1", group="pp 2,3")
            .collective("started", group="dp 0,2"),
            Written(groups)
            .batch("retired", "recv 1<-0", group="pp 2,3")
            .collective("started", group="dp 1,3"),
        ],
        {1: IN_SLEEP},
    )
    assert (waits.analyse(scene).roots, waits.analyse(scene).victims) == ((1,), (0, 2, 3))


def test_healthy_neighbours_that_exchange_messages_wait_for_nobody() -> None:
    scene = a_job(
        [
            Written().batch("started", "send 0->1", "recv 0<-1"),
            Written().batch("started", "recv 1<-0", "send 1->0"),
        ]
    )
    assert waits.analyse(scene).waits == ()


def test_a_message_posted_alone_waits_for_the_rank_that_never_answers() -> None:
    scene = a_job([Written().message("started", "recv 0<-1"), Written()])
    assert waits.analyse(scene).roots == (1,)


def test_messages_posted_together_take_the_state_of_the_whole() -> None:
    read = (
        Written()
        .past(2)
        .batch("retired", "send 0->1", "recv 0<-1")
        .batch("started", "send 0->1", "recv 0<-1")
        .message("scheduled", "send 0->2")
        .recorder()
    )
    assert [(m.op, m.sequence, m.finished, m.started) for m in read.messages] == [
        ("send 0->1", 1, True, True),
        ("recv 0<-1", 1, True, True),
        ("send 0->1", 2, False, True),
        ("recv 0<-1", 2, False, True),
        ("send 0->2", 3, False, False),
    ]
    assert [c.sequence for c in read.collectives] == [1, 2], "the wholes are no collectives"
    assert read.entered == read.finished == {"0": 2}


def test_a_collective_that_failed_still_misses_the_rank_that_left() -> None:
    """NCCL noticed that the other is gone: the watchdog retires what never completed."""
    failed = Written().past(2).collective("started")
    failed.entries[-1]["retired"] = True
    scene = a_job([failed, Written().past(2)])
    left = msgspec.structs.replace(scene.ranks[1], death=Death(code=0, at=NOW - 4), recorder=None)
    seen = waits.analyse(msgspec.structs.replace(scene, ranks=(scene.ranks[0], left)))
    assert [(wait.title, wait.gone) for wait in seen.waits] == [("all_reduce #3", (1,))]


def test_collectives_issued_as_one_start_and_end_as_one() -> None:
    written = Written().past(1).collective("scheduled", "all_gather")
    last = written.entries[-1]["op_id"]
    written._add("0", "coalesced", "started", last)
    read = written.recorder()
    assert [(c.sequence, c.started, c.finished) for c in read.collectives] == [
        (1, True, True),
        (2, True, False),
        (2, True, False),
    ]


@pytest.mark.parametrize(
    ("written", "title"),
    [
        (ahead("scheduled", "scheduled"), "all_reduce"),
        (ahead("started", "scheduled"), None),
        (ahead("retired"), None),
        (Written(timed=False).past(2).collective("scheduled"), None),
        (Written().batch("scheduled", "recv 2<-1"), None),
        (Written().past(1).batch("scheduled", "recv 2<-1"), "recv 2<-1"),
        (Written().past(1).batch("started", "recv 2<-1").collective("scheduled"), None),
    ],
)
def test_what_a_gpu_has_not_started(written: Written, title: str | None) -> None:
    found = gpu_side.not_started(written.recorder())
    assert (found and found.op) == title


def test_a_gpu_waits_since_it_finished_the_last_one_and_not_since_the_script_asked() -> None:
    """#5 was asked for at once and #4 ended ten seconds later: its GPU came to #5 only then."""
    late = ahead("retired", "started")
    late.entries[-2]["time_discovered_completed_ns"] = int((WALL + 28) * 1e9)
    seen = waits.analyse(a_job([late, late, ahead("retired", "scheduled"), late]))
    assert [wait.seconds for wait in seen.waits] == pytest.approx([2.0] * 3, abs=0.01)


def test_a_stray_collective_in_a_pipeline_is_a_circle_of_all() -> None:
    scene = a_job(
        [
            Written().batch("started", "send 0->1"),
            Written().batch("started", "send 1->2"),
            Written().batch("retired", "recv 2<-1").collective("completed"),
            Written().batch("started", "recv 3<-2"),
        ],
        {0: IN_BACKWARD, 2: IN_ALL_REDUCE},
    )
    assert waits.analyse(scene).deadlock == (0, 1, 2, 3)


IN_P2P = a_stack(
    ("_wait_batch_p2p", f"{TORCH}/distributed/pipelining/schedules.py", 683),
    ("train", "/home/me/train.py", 30),
)


@pytest.mark.parametrize(
    ("places", "roots"),
    [
        ({0: IN_P2P, 1: IN_P2P, 2: IN_SLEEP, 3: IN_P2P}, (2,)),
        ({0: IN_P2P, 1: IN_P2P, 2: IN_SLEEP, 3: IN_SLEEP}, ()),
        ({0: IN_P2P, 1: IN_P2P, 2: IN_P2P, 3: IN_P2P}, ()),
        ({0: IN_ALL_REDUCE, 1: IN_P2P, 2: IN_SLEEP, 3: IN_P2P}, ()),
    ],
    ids=["one does not wait", "two do not", "all wait", "one waits otherwise"],
)
def test_with_gloo_the_one_stage_that_waits_for_no_message_is_waited_for(
    places: Mapping[int, Stack], roots: tuple[int, ...]
) -> None:
    """Gloo records no messages: all there is are the stacks."""
    quiet = [Written(timed=False) for _ in range(4)]
    seen = waits.analyse(a_job(quiet, places))
    assert (seen.roots, seen.victims) == (roots, (0, 1, 3) if roots else ())
