from __future__ import annotations

import signal

from tests.faults.table import notice_table, notices, overlooks
from tests.job.scenes import a_rank, a_scene, ended, lost_its_peer

test_notice = notice_table(
    "external-sigterm",
    notices(
        a_scene(told_to_stop="SIGTERM"),
        ranks=[],
        certain=True,
        fatal=True,
        saying=["told to stop: holdfast itself got SIGTERM", "no rank is to blame"],
    ),
    notices(
        a_scene(told_to_stop="SIGINT"),
        ranks=[],
        certain=True,
        fatal=True,
        saying=["interrupted (Ctrl-C)"],
    ),
    notices(
        a_scene([lost_its_peer(0), ended(1, -signal.SIGTERM)]),
        ranks=[1],
        victims=[0],
        certain=True,
        saying=["rank 1 (pid 4001) was ended by SIGTERM from outside", "holdfast did not send it"],
    ),
    overlooks(a_scene()),
    overlooks(a_scene(told_to_stop="SIGHUP")),
    overlooks(a_scene([a_rank(0), ended(1, -signal.SIGKILL)])),
)
