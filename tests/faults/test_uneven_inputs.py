from __future__ import annotations

from tests.faults.table import (
    notice_table,
    notices,
    overlooks,
    passes_over,
    recognise_table,
    recognises,
)
from tests.job.scenes import (
    IN_BARRIER,
    STEPS,
    a_stack,
    changed,
    entry,
    held_up,
    waiting,
)
from tests.remains.jobs import HEALTHY, STUCK, a_job, stood, timed_out

A_BARRIER = waiting(entry(STEPS + 1, op="barrier", shape="", finished=False))
LARGER = waiting(entry(STEPS + 1, shape="[[8]] Float", finished=False))
EARLIER = a_stack(*((f.function, f.file, f.line - 20) for f in IN_BARRIER.frames))

test_notice = notice_table(
    "uneven-inputs",
    notices(
        changed(held_up({}), 2, recorder=A_BARRIER, stack=IN_BARRIER),
        ranks=[2],
        victims=[0, 1, 3],
        certain=True,
        saying=[
            "rank 2 (pid 4002) is past the loop, in barrier() at train.py:44",
            "while ranks 0-1,3 are still in backward",
            "or only it runs that code",
        ],
    ),
    overlooks(held_up({})),
    overlooks(changed(held_up({}), 2, recorder=LARGER, stack=IN_BARRIER)),
    overlooks(changed(held_up({}), 2, recorder=A_BARRIER, stack=EARLIER)),
    overlooks(changed(held_up({}), 2, recorder=A_BARRIER, stack=None)),
    overlooks(changed(held_up({}, ranks=2), 1, recorder=A_BARRIER, stack=IN_BARRIER)),
)


EPOCH = "Epoch 3: 100%|██████████| 500/500 [12:03<00:00,  1.45s/it]"
PAST = {r: stood(11) for r in (1, 2, 3)} | {0: stood(11, op="barrier")}

test_recognise = recognise_table(
    "uneven-inputs",
    recognises(
        a_job(
            "[rank1]: RuntimeError: Detected at least one rank that exhausted inputs. Throwing "
            "across all ranks."
        ),
        sure=0.95,
        rank=None,
        saying=["no more batches"],
    ),
    recognises(
        a_job(EPOCH, *map(timed_out, range(4)), recorders=PAST),
        sure=0.6,
        rank=0,
        saying=["fewer batches"],
    ),
    recognises(
        a_job(*map(timed_out, range(4)), recorders=PAST),
        sure=0.4,
        rank=0,
        saying=["only they run that code"],
    ),
    passes_over(HEALTHY),
    passes_over(STUCK),
    passes_over(a_job(EPOCH, timed_out(0), recorders={0: stood(11), 1: stood(10, 10)}, world=2)),
)
