from __future__ import annotations

from tests.analysis.logs.patterns.jobs import HEALTHY, RESET, STUCK, a_job, a_raise, timed_out
from tests.faults import between
from tests.faults.made_nodes import absent, some_nodes
from tests.faults.table import explain_table, passes_over, recognises

TWO_HOSTS = dict.fromkeys((0, 1), "node-a") | dict.fromkeys((2, 3), "node-b")
FOUR_AND_TWO = dict.fromkeys(range(4), "node-a") | dict.fromkeys((4, 5), "node-b")

test_explain = explain_table(
    "node-lost",
    recognises(
        a_job("srun: error: Node failure on node7"),
        sure=0.92,
        what="node7",
        saying=["node7 was lost"],
    ),
    recognises(
        a_job(
            "The node with node id: 75b2 and address: 192.0.2.7 and node name: x has been marked "
            "dead because the detector has missed too many heartbeats from it."
        ),
        sure=0.92,
        what="192.0.2.7",
        saying=["192.0.2.7"],
    ),
    recognises(
        a_job("The actor is dead because its node has died. Node Id: 677df2a9"),
        sure=0.85,
        saying=["was lost"],
    ),
    recognises(
        a_job(
            "Error: Task failed because the node it was running on is dead or unavailable. Node "
            "IP: 192.0.2.7, node ID: 97d5a252."
        ),
        sure=0.85,
        what="192.0.2.7",
        saying=["192.0.2.7"],
    ),
    passes_over(a_job("The actor is dead because it was killed by `ray.kill`.")),
    recognises(
        a_job("ORTE has lost communication with a remote daemon."), sure=0.6, saying=["gone"]
    ),
    recognises(
        a_job("srun: error: Node failure on node7", raised=[a_raise(1, "ValueError", "bad")]),
        sure=0.5,
        what="node7",
        saying=["node7"],
    ),
    recognises(
        a_job(*map(timed_out, range(4)), hosts=FOUR_AND_TWO, world=6),
        sure=0.75,
        what="node-b",
        victims=[0, 1, 2, 3],
        saying=["ranks 4-5, all ranks on node-b"],
    ),
    # Half of the ranks is no majority, one of a host's two is not the host.
    passes_over(a_job(*map(timed_out, (0, 1)), hosts=TWO_HOSTS)),
    passes_over(a_job(*map(timed_out, (0, 1, 2)), hosts=TWO_HOSTS)),
    passes_over(HEALTHY),
    passes_over(RESET),
    passes_over(STUCK),
)


# --- between nodes -------------------------------------------------------------------------------

REFUSED = "ssh: connect to host node-d port 22: Connection refused"

test_check_nodes = between.table(
    "node-lost",
    between.speaks(
        "error",
        absent(some_nodes(3), "node-d", REFUSED, hint="`ssh node-d true`"),
        saying=[f"node-d takes no part: {REFUSED}", "other 3 were looked at", "ssh node-d true"],
        hosts=["node-d"],
    ),
    between.speaks(
        "error",
        absent(absent(some_nodes(3), "node-d", "timed out after 5 s"), "node-e", REFUSED),
        saying=["node-d takes no part: timed out", "node-e takes no part"],
        hosts=["node-d", "node-e"],
        count=2,
    ),
    between.speaks(
        "error",
        absent(some_nodes(3), "node-b", "lost while trying the paths: it closed the connection"),
        saying=["node-b takes no part: lost while", "answered at first", "other 2 were looked at"],
    ),
    between.silent(some_nodes(3)),
    between.silent(absent(some_nodes(3), "", "3 of 4 came within 10 s")),  # ranks-missing
)
