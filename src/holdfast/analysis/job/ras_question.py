"""Whether NCCL's RAS may be asked about a job that stalls, without a risk to the job. Pure.

RAS has defects where a communicator is being made while it is asked (NVIDIA/nccl#1669, #1762,
#2346): the process that is asked may crash, and what it says is wrong. So it is asked only where no
rank can be making one: all have taken several steps, and each is seen elsewhere.
"""

from __future__ import annotations

import re

from holdfast.analysis.job import pace
from holdfast.analysis.scene.scene import RankView, Recorder, Scene, Stack

_MAKES_GROUPS = re.compile(
    r"init_process_group|_?new_(?:sub)?groups?(?:_\w+)?|split_group|_new_process_group_helper"
    r"|init_device_mesh|shrink_group|destroy_process_group|abort_process_group|eager_connect\w*"
)
"""functions of torch.distributed that make or end communicators"""


def may_be_asked(scene: Scene) -> bool:
    living = [view for view in scene.ranks if view.death is None]
    heard = all(node.hearing == "heard" for node in scene.nodes)
    return len(living) == len(scene.ranks) > 1 and heard and all(map(_is_settled, living))


def _is_settled(view: RankView) -> bool:
    beat = view.beat
    if beat is None or beat.steps < pace.STEPS_TO_KNOW or not beat.group_ready or beat.capturing:
        return False
    if isinstance(view.stack, Stack):
        return not any(_MAKES_GROUPS.fullmatch(_name(f.function)) for f in view.stack.frames)
    return _waits_in_a_collective(view)


def _name(function: str) -> str:
    return function.rpartition(".")[2]


def _waits_in_a_collective(view: RankView) -> bool:
    """Its record begins once the communicator is there."""
    known = view.recorder if isinstance(view.recorder, Recorder) else None
    return known is not None and any(not c.finished for c in known.collectives)
