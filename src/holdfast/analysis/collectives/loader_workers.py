"""Which DataLoader worker a rank waits for, and where that worker is. Pure."""

from __future__ import annotations

from holdfast.analysis.collectives import stacks
from holdfast.analysis.scene.scene import Frame, RankView, Stack


def waits_for_a_worker(stack: Stack) -> bool:
    """It asks its loader for the next batch."""
    return stacks.activity_of(stack) == "data loading"


def at_work(view: RankView) -> str:
    """'its DataLoader worker (pid 4711) is in __getitem__() at data.py:31'; '' when none is seen to
    fetch anything: idle ones wait for an index."""
    for worker in view.workers:
        fetching = _fetching(worker.stack)
        if fetching and (place := stacks.where(fetching)):
            return f"its DataLoader worker (pid {worker.pid}) is {place}"
    return ""


def _fetching(stack: Stack) -> Stack | None:
    """The part of a worker's stack inside its loop; a forked one has its parent's frames around."""
    loops = [n for n, frame in enumerate(stack.frames) if _is_loop(frame)]
    inside = stack.frames[: loops[0]] if loops else ()
    if not any(frame.file.endswith("/torch/utils/data/_utils/fetch.py") for frame in inside):
        return None
    return Stack(frames=inside, active=stack.active, holds_gil=stack.holds_gil)


def _is_loop(frame: Frame) -> bool:
    worker = frame.file.endswith("/torch/utils/data/_utils/worker.py")
    return worker and frame.function.endswith("_worker_loop")
