from __future__ import annotations

import signal
from typing import Any

from tests.analysis.logs.patterns.jobs import HEALTHY, a_job, a_raise, timed_out
from tests.analysis.logs.patterns.made import wreckage
from tests.faults.joiners import gave_up, joined, joiner, late, starting
from tests.faults.table import (
    explain_table,
    notices,
    overlooks,
    passes_over,
    recognises,
    run_table,
)
from tests.run.node_scenes import spread
from tests.run.scenes import IN_SLEEP, NOW, a_rank, a_scene, an_activity, ended, words

CLIENTS = "Timed out after 601 seconds waiting for clients. 3/4 clients joined."
KEYS = "wait timeout after 1800000ms, keys: /default_pg/0//cpu//0/2"
STORE = "The client socket has timed out after 5000ms while trying to connect to (a, 1)."
HALF: dict[str, Any] = {"at": NOW - 400, "timeout": 600.0}
LEFT_AT = ended(0, 0, at=NOW - 50).death

test_run = run_table(
    "join-timeout",
    notices(
        starting(joiner(0, **HALF), joiner(1), late(2)),
        ranks=[2],
        victims=[0, 1],
        certain=False,
        saying=[
            "ranks 0-1 have waited in init_process_group for 6 minutes",
            "rank 2 (pid 4002) has not joined: rank 2 is",
            "at data.py:88",
            "the timeout of 10 minutes expires in about 3 minutes",
            "timedelta(hours=1)",
        ],
    ),
    notices(
        starting(joiner(0, **HALF), late(1, death=LEFT_AT)),
        ranks=[1],
        certain=False,
        saying=["rank 1 ended with exit code 0"],
    ),
    notices(
        spread(starting(joiner(0, **HALF), late(1)), each=1),
        ranks=[1],
        victims=[0],
        certain=False,
        saying=["rank 1 (node node-b, pid 4001) has not joined", "4001` on node node-b"],
    ),
    notices(
        spread(starting(joiner(0, **HALF), joiner(1)), each=1),
        ranks=[],
        certain=False,
        saying=["no rank of any node is missing"],
    ),
    # all of ours are there: said, and no node is blamed
    notices(
        starting(joiner(0, **HALF), joiner(1)),
        ranks=[],
        victims=[0, 1],
        certain=False,
        saying=["no rank of this machine is missing"],
    ),
    notices(
        starting(
            gave_up(0, "DistStoreError", CLIENTS),
            gave_up(1, "DistStoreError", KEYS),
            late(2),
            joiner(3),
        ),
        ranks=[2],
        victims=[0, 1, 3],
        certain=True,
        saying=["ranks 0-1 timed out waiting for the others to join", "3/4 clients", "data.py:88"],
    ),
    notices(
        starting(gave_up(0, "DistStoreError", KEYS), joiner(1)),
        ranks=[],
        victims=[0, 1],
        certain=True,
        saying=["no rank of this machine is missing", "keys: /default_pg"],
    ),
    overlooks(a_scene()),
    overlooks(starting(joiner(0, at=NOW - 200, timeout=600.0), late(1))),  # ranks-missing says it
    overlooks(starting(joiner(0, at=NOW - 400, timeout=0.0), late(1))),
    overlooks(starting(joined(0, **HALF), joined(1, **HALF))),
    # its init_process_group failed, and the script continued without it
    overlooks(starting(joiner(0, **HALF, view={"stack": IN_SLEEP}), late(1))),
    overlooks(starting(gave_up(0, "DistNetworkError", STORE), late(1))),
    overlooks(starting(a_rank(0, words=words("DistStoreError", KEYS)), a_rank(1))),
    overlooks(
        starting(gave_up(0, "DistStoreError", KEYS), ended(1, -signal.SIGKILL, at=NOW - 500))
    ),
    overlooks(
        starting(gave_up(0, "DistStoreError", KEYS), late(1, activity=an_activity(state="T")))
    ),
)


RENDEZVOUS = "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError"

test_explain = explain_table(
    "join-timeout",
    recognises(
        wreckage(
            "[c10d] waitForInput: socket SocketImpl(fd=11, addr=[node-b]:38674, remote=[node-a]:"
            "29500) timed out after 900000ms"
        ),
        sure=0.35,
        saying=["the join timed out"],
    ),
    recognises(
        wreckage("Exception: Timed out waiting for tasks to start. Please check connectivity"),
        sure=0.75,
        saying=["the join timed out"],
    ),
    passes_over(  # more than belong: none is missing
        wreckage(
            "RuntimeError: Timed out initializing process group in store based barrier on "
            "rank: 0, for key: store_based_barrier_key:1 (world_size=2, worker_count=3)"
        )
    ),
    recognises(
        a_job(RENDEZVOUS), sure=0.75, rank=None, saying=["the join timed out", "join_timeout"]
    ),
    recognises(
        a_job("Timed out after 601 seconds waiting for clients. 3/4 clients joined."),
        sure=0.5,
        rank=None,
        saying=["another rank was late or never started"],
    ),
    recognises(
        a_job("[rank1]: DistStoreError: wait timeout after 300000ms, keys: /default_pg/0//cpu//0"),
        sure=0.45,
        rank=None,
        victims=[1],
        saying=["the join timed out"],
    ),
    recognises(
        a_job(RENDEZVOUS, raised=[a_raise(1, "ImportError", "no module named x")]),
        sure=0.3,
        rank=None,
        saying=["the join timed out"],
    ),
    passes_over(HEALTHY),
    passes_over(a_job(timed_out(1))),
    passes_over(a_job("DistStoreError: wait timeout after 300000ms, keys: /my/own/key")),
)
