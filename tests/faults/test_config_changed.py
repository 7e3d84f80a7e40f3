from __future__ import annotations

from holdfast.kept import Account
from tests.faults.table import notice_table, notices, overlooks
from tests.faults.test_restart_from_zero import resumed
from tests.faults.test_world_size_mismatch import REFUSED
from tests.job.scenes import a_rank, a_scene, ended, lost_its_peer, words

CHANGED = words(
    "UsageError",
    "/ckpts/step-000001200 is not from this run: the configuration has changed (lr: 0.1 then, "
    "0.01 now); it was saved by 4 ranks, this job has 2 [config-changed, world-size-mismatch]",
)
OTHER_MODEL = words(
    "UsageError",
    "/ckpts/step-000001200 is not from this run: its tensors differ (model.weight: [4, 4] then, "
    "[8, 4] now) [config-changed]",
)

test_notice = notice_table(
    "config-changed",
    notices(
        a_scene([ended(0, 1, said=CHANGED), ended(1, 1, said=CHANGED), lost_its_peer(2)]),
        ranks=[0, 1],
        victims=[2],
        certain=True,
        fatal=True,
        saying=["lr: 0.1 then, 0.01 now", "HOLDFAST_ACCEPT=config"],
    ),
    notices(
        a_scene([ended(0, 1, said=OTHER_MODEL), a_rank(1)]),
        ranks=[0],
        certain=True,
        fatal=True,
        saying=["model.weight", "empty folder"],
        not_saying=["HOLDFAST_ACCEPT"],
    ),
    notices(
        a_scene(attempt=1, kept=Account(resumed=(resumed(40, accepted=("config",)),))),
        ranks=[],
        certain=False,
        saying=["resumed at step 40 under another configuration", "it is another run"],
    ),
    overlooks(a_scene()),
    overlooks(a_scene([ended(0, 1, said=REFUSED)])),  # world-size-mismatch's alone
    overlooks(a_scene(attempt=1, kept=Account(resumed=(resumed(40),)))),
)
