"""One rank never arrives.

What you see   Nothing: no step, no output, no error. After the group's timeout (10 minutes with
               NCCL, 30 with Gloo) the ranks that *waited* abort, and the log shows them.
Why            A collective ends when every member has come. One rank sits somewhere else: a lock,
               a read from dead storage, an endless loop, a debugger's prompt, a save that takes
               long. All others wait for it in silence.
How to be sure holdfast compares the ranks' flight recorders: who entered the collective, who never
               did; and looks where that one is by its stack, without its help. `py-spy dump --pid
               PID` shows the same. Whether it is stuck or merely busy the counters tell: processor
               time, bytes read and written.
Fix            Look at the line it sits in. Work that takes long by design: let the others not wait
               for it (save in the background), or give the group a longer timeout.
               `--patience S` makes holdfast restart after S seconds of such a wait.
Sources        torch/csrc/distributed/c10d/FlightRecorder.hpp: sequence numbers per group
               https://pytorch.org/blog/flight-recorder-a-new-lens-for-understanding-nccl-watchdog-timeouts/
               https://github.com/pytorch/pytorch/pull/118582
"""

from __future__ import annotations

from holdfast import hold_up
from holdfast.model import Fault, Verdict
from holdfast.signals import Scene

FAULT = Fault(code="HOLD606", slug="rank-stuck")


@FAULT.notice
def others_wait_for_it(scene: Scene) -> Verdict | None:
    held = hold_up.find(scene)
    if held is None:
        return None
    return FAULT.verdict(
        held.sentence(),
        ranks=held.roots,
        victims=held.victims,
        certain=False,
        fix=f"`py-spy dump --pid {scene.rank(held.roots[0]).pid}` shows the line it is in",
        evidence=held.evidence(),
    )
