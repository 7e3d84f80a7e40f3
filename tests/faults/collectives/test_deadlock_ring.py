from __future__ import annotations

from holdfast.analysis.scene.scene import Collective, Recorder
from tests.analysis.logs.patterns.jobs import HEALTHY, STUCK, a_job, a_raise, a_stack, timed_out
from tests.analysis.source.made_sources import python
from tests.faults.table import explain_table, flags, leaves, lint_table, passes_over, recognises


def _sending(rank: int, peer: int) -> Recorder:
    message = Collective(
        group="0", sequence=1, op=f"send {rank}->{peer}", backend="nccl", shape="[4] Float",
        finished=False, created=100.0, timeout=600.0,
    )  # fmt: skip
    return Recorder(
        collectives=(), entered={}, finished={}, members={"0": (0, 1, 2)}, messages=(message,)
    )


TORCH = "/site-packages/torch/distributed/distributed_c10d.py"

test_explain = explain_table(
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
        saying=["ranks 0-3 were all in a send"],
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

test_lint = lint_table(
    "deadlock-ring",
    flags(
        "error",
        python("""
            import torch.distributed as dist
            def pass_on(x, y, rank, world):
                after = rank + 1 if rank < world - 1 else 0
                before = rank - 1
                if rank == 0:
                    before = world - 1
                dist.send(x, after)
                dist.recv(y, before)
        """),
        lines=[7],
        saying=["dist.send"],
    ),
    leaves(  # a line, not a ring: the last has no rank to send to
        python("""
            import torch.distributed as dist
            def pass_on(x, y, rank):
                dist.send(x, rank + 1)
                dist.recv(y, rank - 1)
        """)
    ),
    flags(
        "error",
        python("""
            import torch.distributed as dist
            def shift(x, y, rank, size):
                right = (rank + 1) % size
                left = (rank - 1) % size
                dist.send(x, right)
                dist.recv(y, left)
        """),
        lines=[5],
        saying=["every rank calls dist.send to a neighbour before dist.recv", "batch_isend_irecv"],
    ),
    flags(  # a send that is waited for is the same; objects, too
        "error",
        python("""
            from torch.distributed import get_rank, isend, recv, recv_object_list, send_object_list
            for step in range(10):
                work = isend(x, dst=(get_rank() + 1) % n)
                work.wait()
                recv(y, src=(get_rank() - 1) % n)
            isend(x, get_rank() ^ 1).wait()
            recv(y, get_rank() ^ 1)
            if n > 1 and world_size > 1:
                send_object_list([1], dst=n - 1 - rank)
                recv_object_list(got, src=n - 1 - rank)
        """),
        lines=[3, 6, 9],
        saying=["isend"],
    ),
    flags(
        "error",
        python("""
            import torch.distributed as dist
            class Pair:
                def swap(self, mine, other):
                    with self.lock:
                        dist.recv(other, src=1 - self.rank)
                        other += mine
                        dist.send(mine, dst=1 - self.rank)
        """),
        lines=[5],
        saying=["every rank waits in dist.recv", "nothing is ever sent"],
    ),
    flags(  # one call deep
        "error",
        python("""
            import torch.distributed as dist
            def push(x, to):
                dist.send(x, dst=to)
            def pull(x, source):
                dist.recv(x, src=source)
            def shift(x, y):
                push(x, (rank + 1) % world)
                pull(y, (rank - 1) % world)
        """),
        lines=[7],
        saying=["dist.send (in push)", "dist.recv (in pull)"],
    ),
    flags(
        "warning",
        python("""
            import torch.distributed as dist
            def shift(x, y, next_rank, prev_rank):
                dist.send(x, next_rank)
                dist.recv(y, prev_rank)
        """),
        lines=[3],
        saying=["dist.send"],
    ),
    leaves(  # some begin with the one, some with the other
        python("""
            import torch.distributed as dist
            def shift(x, y, rank, n):
                if rank % 2 == 0:
                    dist.send(x, (rank + 1) % n)
                    dist.recv(y, (rank - 1) % n)
                else:
                    dist.recv(y, (rank - 1) % n)
                    dist.send(x, (rank + 1) % n)
            def give(x, y):
                dist.send(x, (rank + 1) % n)
                dist.recv(y, (rank - 1) % n)
            def take(x, y):
                dist.recv(y, (rank - 1) % n)
                dist.send(x, (rank + 1) % n)
            if is_even:
                give(x, y)
            else:
                take(x, y)
            def pass_on(x, rank, n):
                if rank == 0:
                    dist.send(x, 1)
                    return
                dist.recv(x, (rank - 1) % n)
                dist.send(x, (rank + 1) % n)
        """)
    ),
    leaves(  # posted, not waited for; or both at once; or with one partner only
        python("""
            import torch.distributed as dist
            work = dist.isend(x, (rank + 1) % n)
            dist.recv(y, (rank - 1) % n)
            work.wait()
            def posted(x, y):
                coming = dist.irecv(y, (rank - 1) % n)
                dist.send(x, (rank + 1) % n)
                coming.wait()
                dist.recv(y, (rank - 1) % n)
            def both(ops):
                for work in dist.batch_isend_irecv(ops):
                    work.wait()
            def stage(x, next_rank):
                dist.send(x, next_rank)
                dist.recv(x, next_rank)
            def pipeline(x):
                dist.send(x, dst=0)
                dist.recv(x, src=0)
        """)
    ),
)
