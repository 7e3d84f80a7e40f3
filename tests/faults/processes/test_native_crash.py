from __future__ import annotations

import signal

from holdfast.analysis.machine import Unread
from holdfast.analysis.scene.scene import LastWords, RankView
from tests.analysis.logs.patterns.jobs import (
    HEALTHY,
    STUCK,
    a_job,
    a_raise,
    an_exit,
    lost,
    timed_out,
)
from tests.analysis.logs.patterns.made import wreckage
from tests.faults.table import (
    explain_table,
    notices,
    overlooks,
    passes_over,
    recognises,
    run_table,
)
from tests.run.scenes import (
    ENFORCE,
    IN_SAVE,
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
        recorder=waiting(entry(STEPS + 1, shape="[8] Float", finished=False)),
    ),
    0,
    death=ended(0, -signal.SIGABRT).death,
    recorder=None,
)
SEGFAULT_LINE = "python[4001]: segfault at 0 ip 00007f in libfoo.so[7f]"
IN_A_THREAD = "pt_autograd_0[4077]: segfault at 8 ip 0 in libbar.so (a thread of pid 4001)"
OF_ANOTHER = "python[4002]: segfault at 0 ip 0"

test_run = run_table(
    "native-crash",
    notices(
        a_scene(crash(-signal.SIGSEGV), kernel_events=(SEGFAULT_LINE,)),
        ranks=[1],
        victims=[0, 2],
        certain=True,
        saying=["rank 1 (pid 4001) crashed with SIGSEGV after step 100", SEGFAULT_LINE],
    ),
    notices(
        changed(a_scene(crash(-signal.SIGSEGV)), 1, crash=IN_SAVE),
        ranks=[1],
        certain=True,
        saying=["crashed with SIGSEGV in save() at ckpt.py:40 after step 100"],
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
        saying=["it aborted without a message"],
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


SEGFAULT = "python[1002]: segfault at 28 ip 00007f2a sp 00007ffd error 4 in libfoo.so[7f2a+5a0]"

test_explain = explain_table(
    "native-crash",
    recognises(
        wreckage("terminate called without an active exception", "Aborted (core dumped)"),
        sure=0.55,
        saying=["aborted by the C++ runtime"],
    ),
    # The echo of an error, or of a timeout.
    passes_over(
        a_job(
            "[rank1]: terminate called without an active exception",
            raised=[a_raise(1, "ValueError", "bad")],
        )
    ),
    passes_over(a_job(timed_out(1), "[rank1]: terminate called without an active exception")),
    recognises(
        wreckage("Caught signal 7 (Bus error: nonexistent physical address)"),
        sure=0.4,  # a page that could not be had: shm-too-small
        saying=["Bus error"],
    ),
    recognises(
        a_job(*map(lost, (0, 1, 3)), exits=[an_exit(2, -11, first=True)]),
        sure=0.85,
        rank=2,
        victims=[0, 1, 3],
        saying=["SIGSEGV", "coredumpctl info 1002"],
    ),
    recognises(
        a_job("[rank2]: Fatal Python error: Segmentation fault", exits=[an_exit(2, -11)]),
        sure=0.9,
        rank=2,
        saying=["rank 2 crashed in native code"],
    ),
    recognises(
        a_job(SEGFAULT, pids={2: 1002}), sure=0.9, rank=2, what="libfoo.so", saying=["in libfoo.so"]
    ),
    recognises(
        a_job("[rank1]: double free or corruption (!prev)"),
        sure=0.85,
        rank=1,
        saying=["double free"],
    ),
    recognises(
        a_job(
            "Program terminated with signal SIGSEGV, Segmentation fault.",
            "#0  0x00007f92fef2548f in at::cuda::getDevice() ()",
        ),
        sure=0.65,
        saying=["Segmentation fault"],
    ),
    recognises(a_job(exits=[an_exit(2, -7)]), sure=0.4, rank=2, saying=["SIGBUS"]),
    recognises(
        a_job(exits=[an_exit(2, -6)]), sure=0.5, rank=2, saying=["it aborted without a message"]
    ),
    # torch's watchdog ends a process by abort, after its timeout.
    recognises(  # the launcher saw it first, it wrote nothing, the others lost it
        a_job(lost(1), exits=[an_exit(0, -6, first=True), an_exit(1, -15, teardown=True)]),
        sure=0.5,
        rank=0,
        victims=[1],
        saying=["rank 0 crashed in native code: SIGABRT, it aborted", "rank 1 only lost the"],
    ),
    recognises(  # the launcher numbers it, and nobody lost a peer
        a_job(
            "terminate called without an active exception",
            exits=[an_exit(1, -6, first=True), an_exit(0, -15, teardown=True)],
        ),
        sure=0.55,
        rank=1,
        victims=[0],
        saying=["while the program was exiting; the launcher then ended rank 0"],
    ),
    passes_over(  # it had lost its peer itself
        a_job(lost(1), lost(0), exits=[an_exit(0, -6, first=True)])
    ),
    passes_over(  # Gloo says why
        a_job(
            lost(1),
            "terminate called after throwing an instance of 'gloo::EnforceNotMet'",
            "  what():  [enforce fail at gloo/transport/tcp/pair.cc:456] op.preamble.length <= "
            "op.nbytes. 40000 vs 4. Received data size doesn't match expected size.",
            exits=[an_exit(0, -6, first=True)],
        )
    ),
    passes_over(a_job(timed_out(2), exits=[an_exit(2, -6, first=True)])),
    passes_over(a_job(timed_out(1), exits=[an_exit(2, -6, first=True)])),
    passes_over(a_job(exits=[an_exit(2, -9)])),
    passes_over(a_job(exits=[an_exit(1, -6)], raised=[a_raise(1, "ValueError", "bad")])),
    passes_over(HEALTHY),
    passes_over(STUCK),
)
