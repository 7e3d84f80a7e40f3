"""Which rank is further on in the script, from the lines its stack shows."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.analysis.collectives.signature import Mismatch
from holdfast.analysis.scene.scene import RankView, Scene, Stack

_PARTS = {
    "backward": "/torch/autograd/",
    "forward": "/torch/nn/modules/module.py",
    "the optimizer's step": "/torch/optim/optimizer.py",
}
"""parts of a step, by files in the stack; FSDP2 runs collectives in the first two, sharded
optimizers in the last"""


def left_the_loop(scene: Scene, found: Mismatch) -> bool:
    """The odd ranks are in another operation and in no part of a step, at a later line of the
    function from which the others went into one."""
    if found.undecided or not found.ops_differ:
        return False
    behind = [scene.rank(rank) for rank in found.right]
    ahead = [scene.rank(rank) for rank in found.odd]
    if not all(_part(view) for view in behind) or any(_part(view) for view in ahead):
        return False
    return all(_is_later(view, behind[0]) for view in ahead)


def part(scene: Scene, ranks: Iterable[int]) -> str:
    """'backward', or 'backward or forward' when some are here, some there."""
    return " or ".join(sorted({_part(scene.rank(rank)) for rank in ranks} - {""}))


def _part(view: RankView) -> str:
    if not isinstance(view.stack, Stack):
        return ""
    files = [frame.file for frame in view.stack.frames]
    return next((name for name, file in _PARTS.items() if any(file in f for f in files)), "")


def _is_later(ahead: RankView, behind: RankView) -> bool:
    """In the innermost function that both are in."""
    if not isinstance(ahead.stack, Stack) or not isinstance(behind.stack, Stack):
        return False
    lines = {(f.file, f.function): f.line for f in reversed(behind.stack.frames)}
    for frame in ahead.stack.frames:
        if "-packages/" not in frame.file and (frame.file, frame.function) in lines:
            return frame.line > lines[frame.file, frame.function]
    return False
