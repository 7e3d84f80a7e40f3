"""One rank is slower than the others.

What you see   Every rank shows the same long step: all wait for the slowest in every collective,
               so the step times look alike and the job is merely slow.
Why            A rank that always arrives last: a throttled GPU or CPU, a neighbour on its cores, a
               slower disk under its data, more work than its share, logging on rank 0. With four
               ranks and one five times slower, all run at its pace.
How to be sure The times at which the ranks entered the same collective, from their flight
               recorders: holdfast names the rank that came last again and again and how much of
               the time the others spent waiting for it. With NCCL these times show when the host
               asked, not when the GPU was ready.
Fix            Look at that rank's machine and data: `nvidia-smi -q -d PERFORMANCE`, `top`, the
               loader's time per batch. It is never a reason to kill a job.
Sources        https://github.com/pytorch/pytorch/issues/71303
               nvidia-resiliency-ext docs/source/straggler_det/usage_guide.rst
               torch/csrc/distributed/c10d/FlightRecorder.hpp: time_created
"""

from __future__ import annotations

from holdfast import scene_words
from holdfast.collectives import arrivals
from holdfast.model import Evidence, Fault, Verdict
from holdfast.signals import Scene

FAULT = Fault(code="HOLD609", slug="slow-rank")

SHARE = 0.25
"""of the time; less is the noise of every healthy job"""


@FAULT.notice
def it_comes_last_again_and_again(scene: Scene) -> Verdict | None:
    late = arrivals.latecomer(scene)
    if late is None or late.share < SHARE:
        return None
    others = tuple(v.rank for v in scene.ranks if v.rank != late.rank and v.death is None)
    return FAULT.verdict(
        f"{scene_words.who(scene, [late.rank])} is slow: last in {late.last} of the last "
        f"{late.seen} collectives, by {late.lag * 1000:.0f} ms each; {scene_words.plain(others)} "
        f"spend {late.share:.0%} of the time waiting for it",
        ranks=[late.rank],
        victims=others,
        certain=False,
        fix="see what slows it: `top`, `nvidia-smi -q -d PERFORMANCE`, its loader's time per batch",
        evidence=[
            Evidence(
                quote=f"arrived last {late.last} times of {late.seen} in group {late.group}",
                source="flight recorders",
                rank=late.rank,
            )
        ],
    )
