from __future__ import annotations

import signal

from tests.analysis.logs.patterns.jobs import HEALTHY, a_job, a_raise, an_exit
from tests.faults.table import (
    explain_table,
    notices,
    overlooks,
    passes_over,
    recognises,
    run_table,
)
from tests.run.node_scenes import B, C, four_nodes, on_node
from tests.run.scenes import a_rank, a_scene, ended, lost_its_peer

test_run = run_table(
    "external-sigterm",
    notices(
        a_scene(told_to_stop="SIGTERM"),
        ranks=[],
        certain=True,
        fatal=True,
        saying=["stopped by SIGTERM"],
    ),
    notices(
        a_scene(told_to_stop="SIGINT"),
        ranks=[],
        certain=True,
        fatal=True,
        saying=["stopped by Ctrl-C"],
    ),
    notices(
        a_scene([lost_its_peer(0), ended(1, -signal.SIGTERM)]),
        ranks=[1],
        victims=[0],
        certain=True,
        saying=[
            "rank 1 (pid 4001) was terminated by SIGTERM from outside",
            "holdfast did not send it",
        ],
    ),
    notices(
        on_node(four_nodes(), C, told_to_stop="SIGTERM"),
        ranks=[4, 5],
        hosts=[C],
        victims=[0, 1, 2, 3, 6, 7],
        certain=True,
        saying=["node node-c (ranks 4-5) was told to stop by SIGTERM"],
    ),
    notices(  # Ctrl-C is meant for the whole job
        on_node(on_node(four_nodes(), B, told_to_stop="SIGTERM"), C, told_to_stop="SIGINT"),
        ranks=[4, 5],
        hosts=[C],
        certain=True,
        fatal=True,
        saying=["node node-c (ranks 4-5) was told to stop by Ctrl-C"],
    ),
    overlooks(four_nodes()),
    overlooks(a_scene()),
    overlooks(a_scene(told_to_stop="SIGHUP")),
    overlooks(on_node(four_nodes(), C, told_to_stop="SIGHUP")),
    overlooks(a_scene([a_rank(0), ended(1, -signal.SIGKILL)])),
)


TOLD = "WARNING: Received 15 death signal, shutting down workers"
CANCELLED = "slurmstepd: error: *** STEP 123.0 ON node7 CANCELLED AT 2026-03-02T20:28:05"

test_explain = explain_table(
    "external-sigterm",
    recognises(
        a_job(TOLD),
        sure=0.85,
        what="the sender of the signal",
        saying=["received a stop signal", "hung before, a time limit has ended it"],
        not_saying=["not broken"],
    ),
    recognises(  # or by srun itself, after a task that failed
        a_job(CANCELLED + " ***"),
        sure=0.6,
        what="the sender of the signal",
        saying=["one of its tasks had failed"],
    ),
    recognises(
        a_job(CANCELLED.replace("STEP 123.0", "JOB 123") + " ***"),
        sure=0.85,
        what="the sender of the signal",
        saying=["cancelled through Slurm, by its user"],
    ),
    recognises(
        a_job(raised=[a_raise(0, "KeyboardInterrupt")]),
        sure=0.7,
        what="the sender of the signal",
        saying=["Ctrl-C"],
    ),
    recognises(
        a_job(exits=[an_exit(2, -15, first=True)]), sure=0.6, rank=2, saying=["rank 2 (pid 1002)"]
    ),
    passes_over(a_job(TOLD, raised=[a_raise(1, "ValueError", "bad batch")])),
    passes_over(a_job(CANCELLED + " DUE TO TIME LIMIT ***")),
    # The launcher's own clearing away.
    passes_over(a_job(exits=[an_exit(1, -9, first=True), an_exit(2, -15)])),
    passes_over(a_job("WARNING: Received 1 death signal, shutting down workers")),
    passes_over(HEALTHY),
)
