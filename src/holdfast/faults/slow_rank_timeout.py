"""Long work on one rank comes close to the group's timeout.

What you see   `Watchdog caught collective operation timeout` or `Timed out waiting …ms for recv`
               on all ranks but one, while that one was busy and well: it tokenised the data,
               saved or downloaded a model, evaluated.
Why            The others wait in a barrier or the next collective, and a collective has a timeout:
               600 s with NCCL, 1800 s with Gloo unless told otherwise. The work takes longer. torch
               then aborts and names a rank that waited.
How to be sure The one that did not wait shows processor time or I/O all along, and its stack is in
               that work. Here a longer timeout is the right cure, which it seldom is.
Fix            `init_process_group(timeout=timedelta(hours=2))`, or a group of its own with a long
               timeout for that one barrier, or do the work before the group is formed. holdfast
               ends such a wait at 80 % of the timeout, with the evidence, before torch would.
Sources        https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.init_process_group
               https://github.com/hiyouga/LlamaFactory/issues/360
               pytorch/pytorch torch/distributed/constants.py: default timeouts
"""

from __future__ import annotations

from holdfast import hold_up, scene_words
from holdfast.model import Fault, Verdict
from holdfast.signals import Scene

FAULT = Fault(code="HOLD610", slug="slow-rank-timeout")

SPEAK_AT = 0.5
"""of the timeout: early enough for a person to do something"""
END_AT = 0.8
"""of the timeout: after that torch itself aborts and blames a victim"""
ALIVE = 5.0
"""seconds: whoever moved since is at work"""


@FAULT.notice
def its_work_outlasts_their_patience(scene: Scene) -> Verdict | None:
    held = hold_up.find(scene)
    if held is None or not held.timeout or held.seconds < SPEAK_AT * held.timeout:
        return None
    if any(scene.now - scene.rank(rank).alive_at > ALIVE for rank in held.roots):
        return None
    timeout = scene_words.seconds(held.timeout)
    return FAULT.verdict(
        f"{held.sentence()}; it is at work, but their timeout is {timeout}: holdfast ends the wait "
        f"at {scene_words.seconds(END_AT * held.timeout)}, before torch would and blame a victim",
        ranks=held.roots,
        victims=held.victims,
        certain=False,
        fix="give that wait more time: `init_process_group(timeout=timedelta(hours=2))`",
        evidence=held.evidence(),
    )
