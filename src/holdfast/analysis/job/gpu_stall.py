"""A rank whose GPU, not its script, stalls the job: what is known of it, in words."""

from __future__ import annotations

from holdfast import text
from holdfast.analysis.collectives import gpu_side, groups, messages, waits
from holdfast.analysis.collectives.gpu_side import is_message
from holdfast.analysis.job import phrases, rank_gpus, stall
from holdfast.analysis.job.stall import Stall
from holdfast.analysis.scene import surroundings
from holdfast.analysis.scene.scene import Collective, Recorder, Scene
from holdfast.findings import Evidence


def sentence(held: Stall) -> str:
    """ "rank 2 (pid 1): its GPU has not started all_reduce #66 for 4.1 s: a kernel or copy before
    it has not ended; …"; '' when it is a script that the others wait for, or it is unknown."""
    waiting = _not_started(held)
    if len(waiting) != len(held.roots):
        return ""
    scene, first = held.scene, held.roots[0]
    return (
        f"the GPU of {phrases.who(scene, held.roots)} has not started {waiting[first]} for "
        f"{text.elapsed(held.seconds)}: a kernel or copy before it has not ended{_witness(held)}; "
        f"{held.waiting()}; its script is {stall.place(scene.rank(first))}"
    )


def suspected(scene: Scene) -> bool:
    """Whether the driver is worth a question."""
    recorders = groups.of(scene)
    roots = waits.analyse(scene).roots
    return bool(roots) and all(r in recorders and gpu_side.not_started(recorders[r]) for r in roots)


def _witness(held: Stall) -> str:
    """' (GPU 3: 100 % busy, 180 of 700 W)', as far as the driver says it and it means anything."""
    users = {
        view.rank: rank_gpus.gpu_of(held.scene, view.rank)
        for view in surroundings.on_its_machine(held.scene, held.roots[0])
    }
    gpu = users.get(held.roots[0])
    if gpu is None or len(held.roots) > 1 or (gpu.busy is None and not gpu.silent):
        return ""
    if gpu.silent:
        return f" (GPU {gpu.index}: {gpu.silent} from its driver)"
    watts = f", {gpu.power:.0f} of {gpu.limit:.0f} W" if gpu.limit else ""
    sharing = [rank for rank, used in users.items() if used == gpu]
    if len(sharing) > 1:
        doubt = f", shared by {text.ranks(sharing)}, so it does not show whose work that is"
    else:
        doubt = "" if gpu.busy else ": no kernel runs there, so a copy or the driver is stuck"
    return f" (GPU {gpu.index}: {gpu.busy} % busy{watts}{doubt})"


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
