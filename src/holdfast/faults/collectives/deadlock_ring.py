"""Every rank sends before it receives, and no send completes.

What you see   A silent hang in the first exchange between neighbours, with large messages; small
               ones pass. With NCCL a timeout in `OpType=SEND` on every rank, with Gloo `Timed out
               waiting …ms for send operation`.
Why            A send that is not buffered completes when the other side receives. If all ranks send
               first and receive afterwards, each one waits for a rank that waits too: a ring. With
               NCCL, a send and a receive on one stream also run one after the other.
How to be sure Every rank is in a send, none in a receive, and following 'waits for' leads back to
               where it began. `py-spy dump` shows the same line everywhere.
Fix            Use `dist.batch_isend_irecv([…])`, which posts both at once; or let even ranks send
               first and odd ranks receive first; or call `isend` and `irecv` and wait for both
               afterwards.
Known limits   There is no verdict while the job runs: a running job shows it as rank-stuck or by
               its timeout. `holdfast lint` sees rings whose neighbour is computed from the rank in
               the same function.
Sources        https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.batch_isend_irecv
               https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/p2p.html
               pytorch/gloo gloo/transport/tcp/unbound_buffer.cc: waitSend
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast import text
from holdfast.analysis.collectives import stacks
from holdfast.analysis.logs import blame
from holdfast.analysis.logs.patterns import watchdog
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.source.collectives.ring import SENDS, Ring, rings
from holdfast.analysis.source.program import Program
from holdfast.analysis.source.source import Source
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding

FAULT = Fault(
    code="HOLD612",
    slug="deadlock-ring",
    related=("rank-conditional-code", "rank-stuck", "collective-mismatch"),
)

FIX = (
    "post both at once with `dist.batch_isend_irecv`, or let even ranks send first and odd ranks "
    "receive first; `py-spy dump --pid PID` shows the same send on every rank"
)


@FAULT.explain
def recorders_show_a_ring_of_sends(wreckage: Wreckage) -> Diagnosis | None:
    """By the dumps: open sends and receives whose other side never came, in a ring."""
    known = blame.of(wreckage)
    ring = known.census.ring
    senders = {m.rank for m in known.census.messages if m.way == "send"}
    if len(ring) < 2 or not set(ring) <= senders or known.explained:
        return None
    circle = " → ".join(str(rank) for rank in (*ring, ring[0]))
    return FAULT.diagnosis(
        f"the ranks sent to each other in a ring ({circle}) and none received: each waits for the "
        "next one forever",
        confidence=0.88,
        seen=blame.first_complaint(wreckage),
        evidence=[
            Evidence(quote=f"send to rank {m.peer}, open", source="flight recorder", rank=m.rank)
            for m in known.census.messages
            if m.rank in ring
        ],
        culprit=Culprit(what=f"the exchange between ranks {circle}"),
        victims=ring,
        fix=FIX,
        ruled_out=blame.ruled_out(wreckage),
    )


@FAULT.explain
def all_ranks_were_sending(wreckage: Wreckage) -> Diagnosis | None:
    """By the timeout messages or the stacks, where there is no dump."""
    known = blame.of(wreckage)
    if known.explained or known.census.ring:
        return None
    ways = {s.rank: _way(s) for s in wreckage.seen(watchdog.WATCHDOG, watchdog.GLOO_TIMEOUT)}
    ways |= {r.rank: stacks.collective_of(r.stack) for r in wreckage.ranks if r.stack is not None}
    ranks = {rank for rank in ways if rank is not None}
    if len(ranks) < 2 or set(ways.values()) - {"send", "isend"}:
        return None
    whole = known.counted and ranks == known.members
    return FAULT.diagnosis(
        f"{text.ranks(ranks)} were all in a send and none in a receive: no rank receives what "
        "they send",
        confidence=0.75 if whole else 0.5,
        seen=wreckage.seen(watchdog.WATCHDOG, watchdog.GLOO_TIMEOUT),
        evidence=[
            Evidence(quote=stacks.where(r.stack), source="stack", rank=r.rank)
            for r in wreckage.ranks
            if r.stack is not None
        ],
        culprit=Culprit(what="the order of send and recv"),
        victims=ranks,
        fix=FIX,
        ruled_out=blame.ruled_out(wreckage),
        unknown=() if whole else ("what the other ranks were doing",),
    )


def _way(seen: Sighting) -> str:
    return (seen.fields.get("op") or seen.fields.get("what") or "").lower()


# --- in what a user wrote -----------------------------------------------------------------------


@FAULT.lint_python
def every_rank_sends_first(program: Program, _: Source) -> Iterator[Finding]:
    for ring in rings(program):
        yield (FAULT.error if ring.computed else FAULT.warning)(
            _order(ring),
            reason="a send completes when the other side receives, a receive when it sends; if "
            "all ranks start with the same one, each waits for a neighbour that waits too. Gloo "
            "hangs even with one element; NCCL requires both to be posted together",
            fix="use `for work in dist.batch_isend_irecv([send, recv]): work.wait()` with two "
            "dist.P2POp, or let even ranks send first and odd ranks receive first",
            at=program.place(ring.first.call.node),
        )


def _order(ring: Ring) -> str:
    first, second = ring.first.said, ring.second.said
    if ring.first.op in SENDS:
        return f"every rank calls {first} to a neighbour before {second}: a ring that deadlocks"
    return f"every rank waits in {first} before any calls {second}: nothing is ever sent"
