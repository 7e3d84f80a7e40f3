from __future__ import annotations

import signal

from tests.faults.table import notice_table, notices, overlooks
from tests.job.scenes import a_rank, a_scene, ended

test_notice = notice_table(
    "sighup-terminal",
    notices(
        a_scene(told_to_stop="SIGHUP"),
        ranks=[],
        victims=[0, 1, 2, 3],
        certain=True,
        fatal=True,
        saying=["the terminal was closed", "no rank is to blame", "tmux"],
    ),
    notices(
        a_scene([a_rank(0), ended(1, -signal.SIGHUP)]),
        ranks=[1],
        certain=True,
        saying=["ended by SIGHUP", "or somebody sent it"],
    ),
    overlooks(a_scene()),
    overlooks(a_scene(told_to_stop="SIGTERM")),
)
