"""What the driver says of a GPU that seems stuck, and when that means anything."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.analysis.job import cpu_starvation, gpu_stall, stall
from holdfast.analysis.machine import Unread
from holdfast.analysis.scene.cpu import CpuLook
from holdfast.analysis.scene.gpu import GpuLook
from tests.analysis.collectives.test_gpu_side import a_job, ahead
from tests.run.scenes import NOW, changed

STUCK = a_job([ahead("scheduled" if rank == 2 else "started") for rank in range(4)])


def a_gpu(
    index: int, *pids: int, busy: int | None = 100, limit: float = 700.0, silent: str = ""
) -> GpuLook:
    uuid = f"GPU-{index}"
    return GpuLook(
        index=index, uuid=uuid, busy=busy, power=180.4, limit=limit, pids=pids, silent=silent
    )


OTHERS = (a_gpu(0, 4000), a_gpu(1, 4001), a_gpu(3, 4003))
"""pids as in tests/run/scenes.py"""


@pytest.mark.parametrize(
    ("gpus", "said"),
    [
        ((*OTHERS, a_gpu(2, 4002)), " (GPU 2: 100 % busy, 180 of 700 W);"),
        ((*OTHERS, a_gpu(2, 4002, 99, limit=0.0)), " (GPU 2: 100 % busy);"),
        ((*OTHERS, a_gpu(2, 4002, busy=0)), "no kernel runs there, so a copy or the driver is"),
        ((a_gpu(0, 4000, 4001, 4002, 4003),), "shared by ranks 0-3, so it does not show whose"),
        ((a_gpu(0, 1, 2), a_gpu(2, 3, 4)), "has not ended;"),
        (OTHERS, "has not ended;"),
        ((*OTHERS, a_gpu(2, 4002, busy=None)), "has not ended;"),
        ((*OTHERS, a_gpu(2, 4002, silent="no answer within 1 s")), " (GPU 2: no answer within 1 s"),
        (Unread(why="no answer within 1 s"), "has not ended;"),
        (None, "has not ended;"),
    ],
)
def test_what_the_driver_says_is_added_where_it_means_something(
    gpus: tuple[GpuLook, ...] | Unread | None, said: str
) -> None:
    held = stall.find(msgspec.structs.replace(STUCK, gpus=gpus))
    assert held is not None
    assert said in gpu_stall.sentence(held)


def test_only_a_gpu_that_seems_stuck_is_worth_a_question() -> None:
    assert gpu_stall.suspected(STUCK)
    sleeps = a_job([ahead(*(() if rank == 2 else ("started",))) for rank in range(4)])
    assert not gpu_stall.suspected(sleeps)
    assert not gpu_stall.suspected(a_job([ahead("retired") for _ in range(4)]))


def test_a_lack_of_cores_does_not_explain_a_gpu_that_has_its_work() -> None:
    looks = tuple(CpuLook(at=NOW - 5 + n, ran=0.1 * n, queued=0.9 * n) for n in range(6))
    starved = changed(STUCK, 2, looks=looks)
    assert cpu_starvation.share([starved.rank(2)], since=NOW - 5).starved
    assert cpu_starvation.find(starved) is None
