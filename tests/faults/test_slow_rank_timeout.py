from __future__ import annotations

from tests.faults.table import notice_table, notices, overlooks
from tests.job.scenes import IN_SAVE, NOW, changed, held_up

AT_WORK = {0: {"stack": IN_SAVE, "alive_at": NOW}}
LONG = held_up(AT_WORK, seconds=1000.0, started_at=NOW - 9000)

test_notice = notice_table(
    "slow-rank-timeout",
    notices(
        LONG,
        ranks=[0],
        victims=[1, 2, 3],
        certain=False,
        saying=[
            "in save() at ckpt.py:40 for 16 minutes, at work",
            "their timeout is 30 minutes: holdfast ends the wait at 24 minutes",
            "init_process_group(timeout=",
        ],
    ),
    overlooks(held_up({})),
    overlooks(held_up(AT_WORK, seconds=600.0, started_at=NOW - 9000)),
    overlooks(changed(LONG, 0, alive_at=NOW - 900)),  # not at work: rank-stuck has the words
    # no step for long, but the wait itself has just begun
    overlooks(
        held_up(AT_WORK, seconds=1000.0, victim={"alive_at": NOW - 3}, started_at=NOW - 9000)
    ),
)
