from __future__ import annotations

from tests.analysis.logs.patterns.jobs import HEALTHY, STUCK, a_job, a_raise, an_exit, timed_out
from tests.faults.table import explain_table, passes_over, recognises

LOST = (
    "[rank{}]: [c10d] recvValue failed on SocketImpl(fd=4, addr=[node-b]:53718, "
    "remote=[node-a]:29500): Failed to recv, got 0 bytes. Connection was likely closed."
)
LOSERS = [LOST.format(rank) for rank in (1, 2, 3)]

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
        rank=0,
        saying=["the store"],
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
