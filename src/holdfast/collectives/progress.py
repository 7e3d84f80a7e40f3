"""Which rank is further on in the script, from the lines its stack shows."""

from __future__ import annotations

from holdfast.collectives.mismatch import Mismatch
from holdfast.signals import RankView, Scene, Stack


def left_the_loop(scene: Scene, found: Mismatch) -> bool:
    """The odd ranks are in another operation, at a later line of the function from which the
    others went into backward()."""
    if found.undecided or not found.ops_differ:
        return False
    behind = [scene.rank(rank) for rank in found.right]
    ahead = [scene.rank(rank) for rank in found.odd]
    if not all(_in_backward(view) for view in behind) or any(_in_backward(v) for v in ahead):
        return False
    return all(_is_later(view, behind[0]) for view in ahead)


def _in_backward(view: RankView) -> bool:
    return isinstance(view.stack, Stack) and any(
        "/torch/autograd/" in frame.file for frame in view.stack.frames
    )


def _is_later(ahead: RankView, behind: RankView) -> bool:
    """In the innermost function that both are in."""
    if not isinstance(ahead.stack, Stack) or not isinstance(behind.stack, Stack):
        return False
    lines = {(f.file, f.function): f.line for f in reversed(behind.stack.frames)}
    for frame in ahead.stack.frames:
        if "-packages/" not in frame.file and (frame.file, frame.function) in lines:
            return frame.line > lines[frame.file, frame.function]
    return False
