from __future__ import annotations

import signal

from holdfast.analysis.machine import Unread
from tests.analysis.logs.patterns.jobs import (
    HEALTHY,
    RESET,
    STUCK,
    VANISHED,
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
from tests.run.scenes import NOW, a_rank, a_scene, ended, lost_its_peer

KILLED = [lost_its_peer(0), a_rank(1), ended(2, -signal.SIGKILL), lost_its_peer(3)]

GLOO_TIMEOUT = (
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting "
    "1800000ms for recv operation to complete"
)
UNREAD = Unread(why="kernel log not readable: not by this user (dmesg_restrict)")

test_run = run_table(
    "rank-killed",
    notices(
        a_scene(KILLED),
        ranks=[2],
        victims=[0, 1, 3],
        certain=True,
        saying=[
            "rank 2 (pid 4002) was killed by SIGKILL after step 100",
            "no cgroup OOM kill",
            "ranks 0-1,3 exited as a result",
        ],
    ),
    # the sockets close before the kernel tells of the death: its peers may speak first
    notices(
        a_scene([lost_its_peer(0, at=NOW - 2.0), ended(1, -signal.SIGKILL, at=NOW - 1.99)]),
        ranks=[1],
        certain=True,
        saying=["killed by SIGKILL"],
    ),
    notices(
        a_scene([a_rank(0), ended(1, -signal.SIGKILL)], oom_kills=-1, kernel_events=UNREAD),
        ranks=[1],
        certain=True,
        saying=["whether it was an OOM kill could not be read"],
    ),
    notices(
        a_scene([a_rank(0), ended(1, -signal.SIGKILL)], oom_kills=-1),
        ranks=[1],
        certain=True,
        saying=["no OOM kill in the kernel log"],
    ),
    notices(
        a_scene([a_rank(0), ended(1, -signal.SIGXCPU)]),
        ranks=[1],
        certain=True,
        saying=["SIGXCPU"],
        not_saying=["memory", "OOM"],
    ),
    # a rank that ended well long ago is neither victim nor culprit
    notices(
        a_scene([ended(0, 0, at=NOW - 50), a_rank(1), ended(2, -signal.SIGKILL)]),
        ranks=[2],
        victims=[1],
        certain=True,
        saying=["killed"],
    ),
    overlooks(a_scene()),
    overlooks(a_scene(KILLED, oom_kills=1)),  # host-oom has the words
    overlooks(a_scene([a_rank(0), ended(1, -signal.SIGSEGV)])),
    overlooks(a_scene([ended(0, 3, at=NOW - 3), ended(1, -signal.SIGTERM, at=NOW - 4)])),
)


test_explain = explain_table(
    "rank-killed",
    recognises(
        wreckage(
            "The actor is dead because its worker process has died. Worker exit type: "
            "SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error"
        ),
        sure=0.5,
        saying=["a Ray worker vanished"],
    ),
    passes_over(
        wreckage("RayActorError: The actor died because of an error raised in its creation task")
    ),
    recognises(
        a_job(*map(lost, (0, 1, 3)), exits=[an_exit(2, -9, first=True), an_exit(0, -6)]),
        sure=0.75,
        rank=2,
        victims=[0, 1, 3],
        saying=["rank 2 (pid 1002) was killed by SIGKILL", "dmesg"],
    ),
    recognises(
        a_job("Memory cgroup out of memory: Killed process 1002 (python)", exits=[an_exit(2, -9)]),
        sure=0.3,
        rank=2,
        saying=["SIGKILL"],
    ),
    recognises(a_job(exits=[an_exit(1, -9), an_exit(2, -9)]), sure=0.6, rank=1, saying=["SIGKILL"]),
    recognises(RESET, sure=0.75, rank=2, victims=[0, 1, 3], saying=["connections to it closed"]),
    recognises(
        VANISHED,
        sure=0.45,
        rank=2,
        saying=["did not answer the request for dumps: killed from outside, or stopped"],
    ),
    # A kernel closes the connections of a killed process, and Gloo would have lost them.
    passes_over(a_job(*(f"[rank{r}]: {GLOO_TIMEOUT}" for r in (0, 1, 3)))),
    recognises(a_job(*map(timed_out, (0, 1, 3))), sure=0.3, rank=2, saying=["rank 2 vanished"]),
    passes_over(HEALTHY),
    passes_over(STUCK),
    # What the launcher did itself, a crash, a request to end: other stories.
    passes_over(a_job(exits=[an_exit(0, 1, first=True), an_exit(2, -9, teardown=True)])),
    passes_over(a_job(exits=[an_exit(2, -11), an_exit(1, -15)])),
    # It had raised before: the kill is what came after.
    passes_over(a_job(exits=[an_exit(2, -9)], raised=[a_raise(2, "ValueError", "bad")])),
)
