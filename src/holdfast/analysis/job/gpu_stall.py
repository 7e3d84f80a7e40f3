"""A rank whose GPU, not its script, stalls the job: what is known of it, in words."""

from __future__ import annotations

from holdfast import text
from holdfast.analysis.collectives import gpu_side, groups, messages
from holdfast.analysis.collectives.gpu_side import is_message
from holdfast.analysis.job import phrases, stall
from holdfast.analysis.job.stall import Stall
from holdfast.analysis.scene.scene import Collective, Recorder
from holdfast.findings import Evidence


def sentence(held: Stall) -> str:
    """ "rank 2 (pid 1): its GPU has not started all_reduce #66 for 4.1 s: a kernel or copy before
    it has not ended; …"; '' when the script of a rank holds the others up, or it is unknown."""
    waiting = _not_started(held)
    if len(waiting) != len(held.roots):
        return ""
    scene, first = held.scene, held.roots[0]
    return (
        f"the GPU of {phrases.who(scene, held.roots)} has not started {waiting[first]} for "
        f"{text.elapsed(held.seconds)}: a kernel or copy before it has not ended; "
        f"{held.waiting()}; its script is {stall.place(scene.rank(first))}"
    )


def evidence(held: Stall) -> list[Evidence]:
    return [
        Evidence(
            quote=f"asked for {title}, which its GPU has not started",
            source="flight recorder",
            rank=rank,
        )
        for rank, title in _not_started(held).items()
    ]


def _not_started(held: Stall) -> dict[int, str]:
    recorders = groups.of(held.scene)
    found = {
        rank: gpu_side.not_started(recorders[rank]) for rank in held.roots if rank in recorders
    }
    return {rank: _title(recorders[rank], c, rank) for rank, c in found.items() if c}


def _title(recorder: Recorder, c: Collective, rank: int) -> str:
    if is_message(c):
        return f"its {messages.title(recorder, c, rank)}"
    return f"{c.op} #{c.sequence}{groups.in_words(c.group)}"
