from __future__ import annotations

import msgspec

from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.catalogue import by_slug
from tests.analysis.logs.patterns.made import wreckage
from tests.faults.table import explain_table, passes_over, recognises

TIMED_OUT = (
    "[rank0]: [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, "
    "OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600012 milliseconds before timing out."
)


def nodes(*settings: tuple[str, str, str], trouble: str = TIMED_OUT) -> Wreckage:
    """(host, variable, value) as NCCL shows them on each host."""
    made = wreckage(*(f"NCCL INFO {name} set by environment to {v}" for _, name, v in settings))
    placed = [
        msgspec.structs.replace(one, line=msgspec.structs.replace(one.line, host=host))
        for one, (host, _, _) in zip(made.sightings, settings, strict=True)
    ]
    more = wreckage(trouble).sightings if trouble else ()
    return msgspec.structs.replace(made, sightings=(*placed, *more))


TWO = (("node-a", "NCCL_PROTO", "LL"), ("node-b", "NCCL_PROTO", "Simple"))

test_explain = explain_table(
    "env-mismatch-nodes",
    recognises(
        nodes(*TWO), sure=0.55, what="NCCL_PROTO", saying=["LL on node-a", "Simple on node-b"]
    ),
    recognises(
        nodes(("node-a", "NCCL_ALGO", "Ring"), ("node-b", "NCCL_PROTO", "LL")),
        sure=0.3,
        what="NCCL_ALGO",
        saying=["not on node-b"],
    ),
    passes_over(nodes(*TWO, trouble="")),  # a job that runs may differ as it likes
    passes_over(nodes(*TWO, trouble="[rank0]: KeyError: 'LOCAL_RANK'")),  # another cause
    passes_over(  # machines have other names for their cards
        nodes(("node-a", "NCCL_SOCKET_IFNAME", "eth0"), ("node-b", "NCCL_SOCKET_IFNAME", "ens3"))
    ),
    passes_over(nodes(("node-a", "NCCL_PROTO", "LL"), ("node-b", "NCCL_PROTO", "LL"))),
)


def test_the_odd_one_of_three_is_named() -> None:
    (face,) = by_slug("env-mismatch-nodes").explain_faces
    found = face(nodes(*TWO, ("node-c", "NCCL_PROTO", "Simple")))
    assert found is not None
    assert found.culprit is not None
    assert found.culprit.host == "node-a"
