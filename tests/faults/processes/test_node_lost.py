from __future__ import annotations

from typing import Any

import msgspec

from holdfast.analysis.scene.scene import RankView, Scene
from tests.analysis.logs.patterns.jobs import HEALTHY, RESET, STUCK, a_job, a_raise, timed_out
from tests.analysis.logs.patterns.made import wreckage
from tests.analysis.ras.answers import launched
from tests.faults import between
from tests.faults.made_nodes import absent, some_nodes
from tests.faults.table import explain_table, notices, overlooks, passes_over, recognises, run_table
from tests.run.node_scenes import B, C, closed, four_nodes, gone_silent, on_node
from tests.run.scenes import NOW, changed, ended, lost_its_peer

TWO_HOSTS = dict.fromkeys((0, 1), "node-a") | dict.fromkeys((2, 3), "node-b")
FOUR_AND_TWO = dict.fromkeys(range(4), "node-a") | dict.fromkeys((4, 5), "node-b")

OTHERS = [0, 1, 2, 3, 6, 7]
replace = msgspec.structs.replace


def vars_of(view: RankView) -> dict[str, Any]:
    """How a rank ended, to be put into another scene."""
    return {"death": view.death, "words": view.words, "activity": view.activity}


def without_ranks(scene: Scene, node: str) -> Scene:
    return replace(scene, ranks=tuple(view for view in scene.ranks if view.host != node))


test_run = run_table(
    "node-lost",
    notices(
        closed(four_nodes(), C),
        ranks=[4, 5],
        hosts=[C],
        victims=OTHERS,
        certain=True,
        saying=[
            (
                "node node-c (ranks 4-5) was lost 2.3 s ago: its kernel closed the connection "
                "(Connection reset by peer): its launcher was killed or exited; the machine still "
                "answers"
            ),
            "journalctl -k",
        ],
    ),
    notices(
        closed(four_nodes(), C, machine_answers=False),
        ranks=[4, 5],
        hosts=[C],
        certain=True,
        saying=["its launcher ended, and the machine has stopped answering since"],
    ),
    notices(
        closed(four_nodes(), C, machine_answers=None),
        ranks=[4, 5],
        hosts=[C],
        certain=True,
        saying=["its launcher was killed or exited, or the machine shuts down"],
    ),
    notices(
        gone_silent(four_nodes(), C, machine_answers=False),
        ranks=[4, 5],
        hosts=[C],
        victims=OTHERS,
        certain=True,
        saying=[
            (
                "node node-c (ranks 4-5) was lost: nothing was heard from it for 7.6 s: the "
                "machine does not answer either: it is down, hangs, or is cut off"
            ),
            "`ping -c 3 10.0.0.3`",
        ],
    ),
    notices(
        gone_silent(four_nodes(), C, machine_answers=True),
        ranks=[4, 5],
        hosts=[C],
        certain=True,
        saying=["the machine answers and its launcher does not"],
    ),
    notices(
        gone_silent(four_nodes(), C, farewell="left", farewell_words="disk full"),
        ranks=[4, 5],
        hosts=[C],
        certain=True,
        saying=["its launcher left (disk full)"],
    ),
    notices(  # ten seconds apart: two faults
        gone_silent(gone_silent(four_nodes(), B, seconds=17.0), C),
        ranks=[2, 3, 4, 5],
        hosts=[B, C],
        certain=True,
        saying=["nodes node-b and node-c (ranks 2-5) were lost: node-b: nothing", "; node-c: "],
    ),
    notices(  # what others say of it comes after it
        gone_silent(changed(four_nodes(), 0, **vars_of(lost_its_peer(0, at=NOW - 5))), C),
        ranks=[4, 5],
        hosts=[C],
        certain=True,
        saying=["was lost", "Connection reset by peer"],
    ),
    notices(  # the last thing it said
        closed(changed(four_nodes(), 4, **vars_of(ended(4, -9, at=NOW - 4))), C),
        ranks=[4, 5],
        hosts=[C],
        certain=True,
        saying=["still answers; before that rank 4 (pid 4004): ended by SIGKILL"],
    ),
    notices(  # lost before it reported anything
        gone_silent(without_ranks(four_nodes(), C), C),
        ranks=[],
        hosts=[C],
        certain=True,
        saying=["node node-c (ranks 4-5) was lost"],
    ),
    notices(  # where the lease is so long that it may come back
        on_node(four_nodes(), C, hearing="late", silent=9.0, machine_answers=True),
        ranks=[4, 5],
        hosts=[C],
        victims=OTHERS,
        certain=False,
        saying=[
            (
                "node node-c (ranks 4-5): nothing was heard from it for 9.0 s: the machine answers "
                "and its launcher does not: it is stopped, or gets no CPU time; its ranks may "
                "still run, and the job goes on once it is heard again"
            )
        ],
    ),
    # Late is not lost, and a closed connection may come back.
    overlooks(on_node(four_nodes(), C, hearing="late", silent=5.4)),
    overlooks(closed(four_nodes(), C, seconds=1.4)),
    overlooks(four_nodes()),
    # A rank elsewhere had failed before.
    overlooks(closed(changed(four_nodes(), 0, **vars_of(ended(0, -9, at=NOW - 4))), C)),
    # It was told to stop, and said so; and the store's host is another fault.
    overlooks(gone_silent(four_nodes(), C, told_to_stop="SIGTERM")),
    overlooks(gone_silent(four_nodes(), C, serves_store=True)),
)


HALF = ("192.0.2.2", "192.0.2.2", "192.0.2.3", "192.0.2.3")

test_explain = explain_table(
    "node-lost",
    recognises(
        wreckage(ras=(launched(7, 7, 7, 7, silent=[2, 3], hosts=HALF),)),
        sure=0.7,
        what="192.0.2.3",
        victims=[0, 1],
        saying=["none of the 2 processes on 192.0.2.3 answers", "ping -c 3 192.0.2.3"],
    ),
    passes_over(wreckage(ras=(launched(7, 7, 7, 7, silent=[3], hosts=HALF),))),
    passes_over(wreckage(ras=(launched(7, 7, 7, 7, silent=[0, 2, 3], hosts=HALF),))),
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
