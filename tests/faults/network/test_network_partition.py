from __future__ import annotations

from holdfast.analysis.logs.patterns.dead_connections import DIED_IN_USE
from holdfast.analysis.logs.wreckage import LogLine, Sighting, Wreckage
from tests.analysis.logs.patterns.made import wreckage
from tests.faults.table import explain_table, passes_over, recognises

DOWN = "node-a kernel: mlx5_core 0000:18:00.0 ens3f0np0: Link down"
FAILED = "[rank1]: NCCL WARN Net : Connect to 192.0.2.7<43210> failed : Connection timed out"


def lost(host: str, peer: str) -> Sighting:
    line = LogLine(text=f"Call to recv from {peer}<1> failed", source=host, number=1, host=host)
    return Sighting(
        pattern=DIED_IN_USE.name,
        slug=DIED_IN_USE.slug,
        role=DIED_IN_USE.role,
        line=line,
        fields={"address": peer},
    )


test_explain = explain_table(
    "network-partition",
    recognises(
        wreckage(DOWN, FAILED),
        sure=0.7,
        what="ens3f0np0",
        saying=["the link of ens3f0np0 went down"],
    ),
    recognises(wreckage(DOWN), sure=0.4, what="ens3f0np0", saying=["ethtool ens3f0np0"]),
    recognises(
        Wreckage(sightings=(lost("node-a", "192.0.2.7"), lost("node-b", "192.0.2.2"))),
        sure=0.45,
        what="path between the hosts",
        saying=["node-a and node-b lost each other"],
    ),
    passes_over(Wreckage(sightings=(lost("node-a", "192.0.2.7"),))),
    passes_over(wreckage(FAILED)),
)
