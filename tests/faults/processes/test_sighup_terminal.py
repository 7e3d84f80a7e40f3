from __future__ import annotations

import signal

from tests.analysis.logs.patterns.jobs import HEALTHY, a_job, an_exit
from tests.faults.table import (
    explain_table,
    notices,
    overlooks,
    passes_over,
    recognises,
    run_table,
)
from tests.run.node_scenes import C, four_nodes, on_node
from tests.run.scenes import a_rank, a_scene, ended

test_run = run_table(
    "sighup-terminal",
    notices(
        a_scene(told_to_stop="SIGHUP"),
        ranks=[],
        victims=[0, 1, 2, 3],
        certain=True,
        fatal=True,
        saying=["the terminal was closed", "tmux"],
    ),
    notices(
        a_scene([a_rank(0), ended(1, -signal.SIGHUP)]),
        ranks=[1],
        certain=True,
        saying=["ended by SIGHUP", "or another process sent it"],
    ),
    notices(
        on_node(four_nodes(), C, told_to_stop="SIGHUP"),
        ranks=[4, 5],
        hosts=[C],
        victims=[0, 1, 2, 3, 6, 7],
        certain=True,
        saying=["node node-c (ranks 4-5) was stopped by SIGHUP: the terminal was closed"],
    ),
    overlooks(a_scene()),
    overlooks(a_scene(told_to_stop="SIGTERM")),
    overlooks(on_node(four_nodes(), C, told_to_stop="SIGTERM")),
)


test_explain = explain_table(
    "sighup-terminal",
    recognises(
        a_job("WARNING: Received 1 death signal, shutting down workers"),
        sure=0.92,
        what="terminal",
        saying=["SIGHUP", "tmux"],
    ),
    recognises(
        a_job(
            "torch.distributed.elastic.multiprocessing.api.SignalException: Process 4711 got "
            "signal: 1"
        ),
        sure=0.92,
        what="terminal",
        saying=["SIGHUP"],
    ),
    recognises(
        a_job("WARNING:api:Sending process 1011 closing signal SIGHUP"),
        sure=0.92,
        what="terminal",
        saying=["SIGHUP"],
    ),
    recognises(
        a_job(exits=[an_exit(2, -1, first=True)]), sure=0.8, what="terminal", saying=["SIGHUP"]
    ),
    passes_over(a_job("WARNING:api:Sending process 1011 closing signal SIGTERM")),
    passes_over(a_job("WARNING: Received 15 death signal, shutting down workers")),
    passes_over(HEALTHY),
)
