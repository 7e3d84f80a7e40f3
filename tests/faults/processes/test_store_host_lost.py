from __future__ import annotations

from holdfast.faults.processes.store_host_lost import coordinator_lost
from tests.analysis.logs.patterns.jobs import HEALTHY, STUCK, a_job, a_raise, an_exit, timed_out
from tests.faults.table import explain_table, notices, overlooks, passes_over, recognises, run_table
from tests.run.node_scenes import B, closed, four_nodes, gone_silent

LOST = (
    "[rank{}]: [c10d] recvValue failed on SocketImpl(fd=4, addr=[node-b]:53718, "
    "remote=[node-a]:29500): Failed to recv, got 0 bytes. Connection was likely closed."
)
LOSERS = [LOST.format(rank) for rank in (1, 2, 3)]

test_run = run_table(
    "store-host-lost",
    notices(
        gone_silent(four_nodes(), B, serves_store=True),
        ranks=[2, 3],
        hosts=[B],
        victims=[0, 1, 4, 5, 6, 7],
        certain=True,
        saying=["node node-b (ranks 2-3), which serves the store, was lost: nothing was heard"],
    ),
    overlooks(gone_silent(four_nodes(), B)),
    overlooks(closed(four_nodes(), B, seconds=1.0, serves_store=True)),
    overlooks(four_nodes()),
)


def test_what_a_launcher_says_that_lost_its_coordinator() -> None:
    said = coordinator_lost(
        coordinator="a", own="c", farewell="silent", words="", silent=7.5, answers=None
    )
    assert (said.slug, said.hosts, said.certain, said.fatal) == (
        "store-host-lost",
        ("a",),
        True,
        True,
    )
    assert "node a, which coordinates the job and serves its store, was lost" in said.reason
    assert "nothing was heard from it for 7.5 s" in said.reason
    closed_by = coordinator_lost(
        coordinator="a", own="c", farewell="closed", words="EOF", silent=2.0, answers=True
    )
    assert "its kernel closed the connection (EOF)" in closed_by.reason


test_explain = explain_table(
    "store-host-lost",
    recognises(
        a_job(*LOSERS), sure=0.6, rank=0, victims=[1, 2, 3], saying=["ranks 1-3 lost", "rank 0"]
    ),
    recognises(a_job(LOSERS[0]), sure=0.45, rank=0, saying=["rank 1 lost"]),
    recognises(
        a_job(
            "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to "
            "the C10d store has failed.",
            world=None,
        ),
        sure=0.35,
        what="the launcher that hosts the store",
        saying=["that launcher exited, or its machine or the path to it was lost"],
    ),
    # Something better explains how rank 0 ended.
    passes_over(a_job(*LOSERS, raised=[a_raise(0, "ValueError", "bad batch")])),
    passes_over(a_job(*LOSERS, exits=[an_exit(0, -9, first=True)])),
    passes_over(a_job(*LOSERS, finished=[0])),
    # Rank 0 lost it too, so it does not hold it; after a timeout all go down.
    passes_over(a_job(LOST.format(0), *LOSERS)),
    passes_over(a_job(timed_out(1), *LOSERS)),
    passes_over(HEALTHY),
    passes_over(STUCK),
)
