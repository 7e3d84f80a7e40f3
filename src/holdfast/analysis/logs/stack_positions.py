"""Where each rank is, by the stacks alone: for jobs without readable recorders. Pure.

torchrun serves no flight recorder, and a py-spy dump of every rank is what people take of a hang.
A rank inside a collective, or in backward() where DDP and FSDP make theirs, waits for another
rank; one that is elsewhere while all the others do so is the one they wait for.
"""

from __future__ import annotations

import msgspec

from holdfast.analysis.collectives import stacks
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.scene import secondary_errors
from holdfast.analysis.scene.scene import Stack

GPU_WAIT = "synchronize()"
"""where a script waits for its GPU, which may be in a collective"""
FEW = 4
"""one in so many ranks may be elsewhere: if more are, the job is somewhere between two steps"""


class StackPositions(msgspec.Struct, frozen=True, kw_only=True):
    elsewhere: dict[int, Stack]
    """ranks that wait for no other rank, as far as their stacks show"""
    waiting: dict[int, str]
    """rank -> what it waits in: 'all_reduce()', 'backward()'"""
    whole: bool
    """the stacks of all ranks of the job are here"""
    doubt: str = ""
    """why the ranks that seem to wait may not"""


def find(wreckage: Wreckage) -> StackPositions | None:
    """None when the stacks do not tell one rank, or a few, from the others."""
    found = {r.rank: r.stack for r in wreckage.ranks if r.stack is not None and r.stack.frames}
    idle = {r.rank: r.idle for r in wreckage.ranks if r.idle is not None}
    return _compared(found, wreckage, idle)


def at_interrupt(wreckage: Wreckage) -> StackPositions | None:
    """Where the ranks were when Ctrl-C or SIGINT ended the job: the traceback of a
    KeyboardInterrupt is a stack. One that waited inside a collective cannot be interrupted there:
    it shows that collective when its connections close."""
    if not any(one.kind == "KeyboardInterrupt" for one in wreckage.raised):
        return None
    found: dict[int, Stack] = {}
    for one in wreckage.raised:
        waited = one.consequence in (secondary_errors.LOST_PEER, secondary_errors.TIMED_OUT)
        if one.rank is not None and one.frames and (waited or one.kind == "KeyboardInterrupt"):
            found.setdefault(one.rank, Stack(frames=one.frames, active=False, holds_gil=False))
    return _compared(found, wreckage, {})


def _compared(
    found: dict[int, Stack], wreckage: Wreckage, idle: dict[int, bool]
) -> StackPositions | None:
    """`idle`: of ranks that were watched, whether they did anything."""
    waiting = {rank: place for rank, stack in found.items() if (place := waits_in(stack))}
    on_gpus = {rank: GPU_WAIT for rank, stack in found.items() if stacks.in_gpu_wait(stack)}
    waiting = waiting or on_gpus  # beside a rank in a collective, the GPU may be what is stuck
    elsewhere = {rank: stack for rank, stack in found.items() if rank not in waiting}
    if not waiting or not elsewhere:
        return None
    # Seen to do nothing: no accident, however few they are. A stage of a pipeline waits like that
    # for its turn as well.
    waits = all(idle.get(rank) for rank in waiting) and not any(
        stacks.MESSAGES.search(place) for place in waiting.values()
    )
    if not waits and len(elsewhere) > max(1, len(found) // FEW):
        return None
    # There a rank computes as well; two ranks against one are no accident.
    both = next((place for place in waiting.values() if place in ("backward()", GPU_WAIT)), "")
    lone = len(waiting) == 1 and bool(both) and not waits
    if lone and not idle:
        return None
    return StackPositions(
        elsewhere=elsewhere,
        waiting=waiting,
        whole=len(found) == len(wreckage.members),
        doubt=f"whether it waits or computes: a rank does both in {both}" if lone else "",
    )


def waits_in(stack: Stack) -> str:
    """'' when it does not show that it waits for other ranks."""
    if collective := stacks.collective_of(stack):
        return f"{collective}()"
    inside = bool(stack.frames) and "/torch/autograd/" in stack.frames[0].file
    return "backward()" if inside else ""
