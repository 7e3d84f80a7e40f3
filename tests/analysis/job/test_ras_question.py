"""RAS is asked only where no rank can be making a communicator."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.analysis.job import ras_question
from holdfast.analysis.machine import Unread
from holdfast.analysis.scene.scene import Frame, Scene, Stack
from tests.run.scenes import a_beat, changed, ended, held_up, on_nodes

STUCK = held_up({2: {}})
UNSEEN = Unread(why="ptrace is not permitted")


def in_function(name: str) -> Stack:
    torch = "/x/site-packages/torch/distributed/distributed_c10d.py"
    frames = (Frame(function=name, file=torch, line=1), Frame(function="main", file="t.py", line=9))
    return Stack(frames=frames, active=False, holds_gil=False)


@pytest.mark.parametrize(
    "scene",
    [
        STUCK,
        changed(STUCK, 2, stack=in_function("all_reduce")),
        changed(STUCK, 0, stack=UNSEEN),  # its recorder shows where it waits
        on_nodes(STUCK, 2),
    ],
)
def test_it_is_asked_about_a_job_that_stalls_in_its_midst(scene: Scene) -> None:
    assert ras_question.may_be_asked(scene)


@pytest.mark.parametrize(
    "scene",
    [
        changed(STUCK, 1, beat=a_beat(steps=2)),  # its first collectives make communicators
        changed(STUCK, 1, beat=None),
        changed(STUCK, 1, beat=a_beat(group_ready=False)),
        changed(STUCK, 1, beat=a_beat(capturing=True)),
        changed(STUCK, 1, stack=in_function("new_group")),
        changed(STUCK, 1, stack=in_function("DeviceMesh.split_group")),
        changed(STUCK, 1, stack=in_function("destroy_process_group")),
        changed(STUCK, 2, stack=UNSEEN),  # where the others wait for it, it is not
        changed(STUCK, 0, stack=UNSEEN, recorder=UNSEEN),
        on_nodes(STUCK, 2, b="late"),
        msgspec.structs.replace(STUCK, ranks=STUCK.ranks[:1]),
        msgspec.structs.replace(STUCK, ranks=(*STUCK.ranks[:3], ended(3, 1))),
    ],
)
def test_it_is_not_asked_while_a_communicator_may_be_made(scene: Scene) -> None:
    assert not ras_question.may_be_asked(scene)
