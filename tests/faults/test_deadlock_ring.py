from __future__ import annotations

from holdfast.signals import Collective, Recorder
from tests.faults.table import passes_over, recognise_table, recognises
from tests.remains.jobs import HEALTHY, STUCK, a_job, a_raise, a_stack, timed_out


def _sending(rank: int, peer: int) -> Recorder:
    message = Collective(
        group="0", sequence=1, op=f"send {rank}->{peer}", backend="nccl", shape="[[4]] Float",
        finished=False, created=100.0, timeout=600.0,
    )  # fmt: skip
    return Recorder(
        collectives=(), entered={}, finished={}, members={"0": (0, 1, 2)}, messages=(message,)
    )


TORCH = "/site-packages/torch/distributed/distributed_c10d.py"

test_recognise = recognise_table(
    "deadlock-ring",
    recognises(
        a_job(recorders={r: _sending(r, (r + 1) % 3) for r in range(3)}, world=3),
        sure=0.88,
        what="0 → 1 → 2 → 0",
        victims=[0, 1, 2],
        saying=["batch_isend_irecv"],
    ),
    recognises(
        a_job(*(timed_out(r, op="SEND") for r in range(4))),
        sure=0.75,
        what="send and recv",
        saying=["ranks 0-3 all stood in a send"],
    ),
    recognises(
        a_job(*(timed_out(r, op="SEND") for r in (0, 1)), world=None),
        sure=0.5,
        what="send",
        saying=["ranks 0-1"],
    ),
    recognises(
        a_job(stacks={r: a_stack("send", TORCH) for r in range(4)}),
        sure=0.75,
        what="send",
        saying=["send"],
    ),
    passes_over(a_job(timed_out(0, op="SEND"), timed_out(1, op="RECV"))),
    passes_over(
        a_job(
            timed_out(0, op="SEND"),
            timed_out(1, op="SEND"),
            raised=[a_raise(2, "ValueError", "bad")],
        )
    ),
    passes_over(HEALTHY),
    passes_over(STUCK),
)
