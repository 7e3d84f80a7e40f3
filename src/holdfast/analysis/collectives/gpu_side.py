"""Where the GPUs are, not the scripts: a script asks NCCL for a collective and runs on, seconds
ahead of its GPU, so 'every rank has entered it' hides a GPU that never comes to it.

With TORCH_NCCL_ENABLE_TIMING torch also records when a GPU comes to a collective (`started`). A
GPU that is in none, and has not come to one that its script asked for, is busy with something
before it: a kernel, a copy. What that is no recorder shows.
"""

from __future__ import annotations

from holdfast.analysis.collectives import signature
from holdfast.analysis.scene.scene import Collective, Recorder


def has_reached(recorder: Recorder, group: str, sequence: int) -> bool:
    """Whether it is in that collective or past it: its GPU where that is known, else its script."""
    if recorder.entered.get(group, 0) < sequence:
        return False
    if recorder.finished.get(group, 0) >= sequence:
        return True
    entry = signature.entry(recorder, group, sequence)
    return entry is None or entry.started is not False


def not_started(recorder: Recorder) -> Collective | None:
    """What its GPU has not come to, where it is in no other collective or message: the oldest."""
    pending = [c for c in (*recorder.collectives, *recorder.messages) if _is_open(recorder, c)]
    if any(c.started is not False for c in pending):
        return None
    return min(pending, key=lambda c: c.created, default=None)


def _is_open(recorder: Recorder, c: Collective) -> bool:
    if c.finished or c.started is None:
        return False
    return is_message(c) or c.sequence > recorder.finished.get(c.group, 0)


def is_message(c: Collective) -> bool:
    """Sends and receives have their own numbers."""
    return c.op.startswith(("send ", "recv "))


def last_end(recorder: Recorder) -> float:
    """When its GPU was last seen to finish one: wall seconds, 0 unknown."""
    return max((c.ended for c in (*recorder.collectives, *recorder.messages)), default=0.0)
