from __future__ import annotations

import signal
from typing import Any

from holdfast.analysis.scene.scene import ExitCall, RankView
from tests.faults.table import notices, overlooks, run_table
from tests.run.scenes import NOW, a_beat, a_rank, a_scene, changed, ended, lost_its_peer, words

TERMINATED = words("terminate", "terminate called without an active exception", where="")


def aborted(*, phase: str = "exit", **beat: Any) -> list[RankView]:
    view = ended(1, -signal.SIGABRT, said=TERMINATED)
    scene = changed(a_scene([a_rank(0), view]), 1, beat=a_beat(phase=phase, **beat))
    return [a_rank(0), scene.rank(1)]


def asked_for(code: int) -> ExitCall:
    return ExitCall(by="sys.exit", code=code, where="train.py:9 in main", at=NOW - 1.1)


test_run = run_table(
    "crash-at-exit",
    notices(
        a_scene(aborted()),
        ranks=[1],
        certain=True,
        saying=["aborted while exiting after step 100", "nothing of it is lost"],
    ),
    notices(a_scene(aborted(exit_call=asked_for(0))), ranks=[1], certain=True, saying=["exiting"]),
    overlooks(a_scene(aborted(exit_call=asked_for(3)))),  # its own code says that it failed
    overlooks(a_scene(aborted(phase=""))),  # in the middle of its work
    overlooks(a_scene([a_rank(0), ended(1, -signal.SIGABRT)])),  # a crash without a word
    overlooks(a_scene([*aborted()[1:], ended(2, -signal.SIGSEGV, at=NOW - 3)])),
    overlooks(a_scene([ended(0, -signal.SIGABRT, said=TERMINATED), lost_its_peer(2)])),
)
