from __future__ import annotations

import signal

from holdfast.facts import Unread
from holdfast.signals import LastWords, RankView
from tests.faults.table import notice_table, notices, overlooks
from tests.job.scenes import (
    ENFORCE,
    NOW,
    STEPS,
    a_rank,
    a_scene,
    changed,
    ended,
    entry,
    held_up,
    lost_its_peer,
    waiting,
    words,
)


def crash(code: int, said: LastWords | None = None) -> list[RankView]:
    return [a_rank(0), ended(1, code, said=said), lost_its_peer(2)]


ABORTED_IN_A_MISMATCH = changed(
    changed(
        held_up({}, seconds=1.0, ranks=3),
        1,
        recorder=waiting(entry(STEPS + 1, shape="[[8]] Float", finished=False)),
    ),
    0,
    death=ended(0, -signal.SIGABRT).death,
    recorder=None,
)
SEGFAULT_LINE = "python[4001]: segfault at 0 ip 00007f in libfoo.so[7f]"
IN_A_THREAD = "pt_autograd_0[4077]: segfault at 8 ip 0 in libbar.so (a thread of pid 4001)"
OF_ANOTHER = "python[4002]: segfault at 0 ip 0"

test_notice = notice_table(
    "native-crash",
    notices(
        a_scene(crash(-signal.SIGSEGV), kernel_events=(SEGFAULT_LINE,)),
        ranks=[1],
        victims=[0, 2],
        certain=True,
        saying=["rank 1 (pid 4001) crashed with SIGSEGV after step 100", SEGFAULT_LINE],
    ),
    notices(
        a_scene(crash(-signal.SIGSEGV), kernel_events=(IN_A_THREAD, OF_ANOTHER)),
        ranks=[1],
        certain=True,
        saying=[IN_A_THREAD],
        not_saying=[OF_ANOTHER],
    ),
    notices(
        a_scene(crash(-signal.SIGSEGV), kernel_events=Unread(why="kernel log not readable: no")),
        ranks=[1],
        certain=True,
        saying=["kernel log not readable: no"],
    ),
    notices(
        a_scene(crash(-signal.SIGBUS)),
        ranks=[1],
        certain=True,
        saying=["SIGBUS", "/dev/shm"],
    ),
    notices(
        a_scene(crash(-signal.SIGABRT)),
        ranks=[1],
        certain=True,
        saying=["gave up by itself, and left no words"],
    ),
    notices(
        a_scene(crash(-signal.SIGABRT, said=words("std::bad_alloc", "std::bad_alloc"))),
        ranks=[1],
        certain=True,
        saying=["std::bad_alloc"],
    ),
    overlooks(a_scene()),
    overlooks(ABORTED_IN_A_MISMATCH),
    # Gloo's size check and a lost peer are other ranks' faults
    overlooks(a_scene(crash(-signal.SIGABRT, said=words("gloo::EnforceNotMet", ENFORCE)))),
    overlooks(
        a_scene([ended(0, 3, at=NOW - 3, said=words("ValueError", at=NOW - 4)), ended(1, -6)])
    ),
)
