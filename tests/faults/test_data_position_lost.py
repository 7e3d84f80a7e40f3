from __future__ import annotations

from holdfast.kept import Account
from tests.faults.table import notice_table, notices, overlooks
from tests.faults.test_restart_from_zero import resumed
from tests.job.scenes import a_scene, ended, words

LOST = words(
    "UsageError",
    "the data is not what it was: 1000 samples then, 900 now; samples would be skipped or seen "
    "twice [data-position-lost]",
)

test_notice = notice_table(
    "data-position-lost",
    notices(
        a_scene([ended(0, 1, said=LOST), ended(1, 1, said=LOST)]),
        ranks=[0, 1],
        certain=True,
        fatal=True,
        saying=["1000 samples then, 900 now"],
    ),
    notices(
        a_scene(attempt=1, kept=Account(resumed=(resumed(40, data="unknown"),))),
        ranks=[],
        certain=False,
        saying=["resumed at step 40, but no place in the data was saved", "holdfast.Sampler"],
    ),
    overlooks(a_scene()),
    overlooks(a_scene(attempt=1, kept=Account(resumed=(resumed(40, data="global"),)))),
    overlooks(a_scene(attempt=1, kept=Account(resumed=(resumed(40),)))),  # it did not tell
    overlooks(a_scene(attempt=1, kept=Account(resumed=(resumed(0, data="unknown"),)))),
)
