from __future__ import annotations

from holdfast.analysis.scene.cpu import Scheduler
from tests.analysis.logs.patterns.jobs import HEALTHY, a_job, a_raise
from tests.faults.table import (
    explain_table,
    notices,
    overlooks,
    passes_over,
    recognises,
    run_table,
)
from tests.run.node_scenes import C, four_nodes, on_node
from tests.run.scenes import a_rank, a_scene, ended


def slurm(left: float | None) -> Scheduler:
    return Scheduler(name="Slurm", job="123", left=left)


test_run = run_table(
    "preempted",
    notices(
        a_scene(told_to_stop="SIGTERM", scheduler=slurm(3 * 3600.0)),
        ranks=[],
        victims=[0, 1, 2, 3],
        certain=True,
        fatal=True,
        saying=[
            "Slurm took the machine from job 123 before its time limit (3 hours left): preempted",
            "or cancelled",
            "not a failure of the job",
            "sacct -j 123",
        ],
    ),
    # a rank that got the signal too has ended already: still no rank's fault
    notices(
        a_scene([a_rank(0), ended(1, -15)], told_to_stop="SIGTERM", scheduler=slurm(7200.0)),
        ranks=[],
        certain=True,
        fatal=True,
        saying=["preempted"],
    ),
    notices(
        a_scene(told_to_stop="SIGTERM", scheduler=slurm(-12.0)),
        ranks=[],
        certain=True,
        fatal=True,
        saying=[
            "the time limit of Slurm job 123 was reached (12.0 s past the limit)",
            "not a failure",
        ],
        not_saying=["preempted,"],
    ),
    notices(
        a_scene(told_to_stop="SIGTERM", scheduler=slurm(40.0)),
        ranks=[],
        certain=True,
        fatal=True,
        saying=["the time limit of Slurm job 123 was reached (40.0 s left)"],
    ),
    notices(
        a_scene(told_to_stop="SIGUSR1", scheduler=slurm(300.0)),
        ranks=[],
        certain=True,
        fatal=True,
        saying=["the warning it requested, SIGUSR1, with 5 minutes left"],
        not_saying=["preempted,"],
    ),
    notices(  # one node of several: the others may go on
        on_node(four_nodes(), C, told_to_stop="SIGTERM", scheduler=slurm(3600.0)),
        ranks=[4, 5],
        hosts=[C],
        victims=[0, 1, 2, 3, 6, 7],
        certain=True,
        saying=["node node-c (ranks 4-5): Slurm took the machine from job 123", "preempted"],
    ),
    overlooks(on_node(four_nodes(), C, told_to_stop="SIGTERM")),
    overlooks(on_node(four_nodes(), C, told_to_stop="SIGINT", scheduler=slurm(3600.0))),
    overlooks(a_scene(scheduler=slurm(3600.0))),
    overlooks(a_scene(told_to_stop="SIGTERM")),
    overlooks(a_scene(told_to_stop="SIGTERM", scheduler=slurm(None))),
    # the limit was moved since the start, so its end is unknown
    overlooks(a_scene(told_to_stop="SIGTERM", scheduler=slurm(-5000.0))),
    overlooks(a_scene(told_to_stop="SIGTERM", scheduler=Scheduler(name="Kubernetes", job="pod"))),
    # people, not schedulers
    overlooks(a_scene(told_to_stop="SIGINT", scheduler=slurm(3600.0))),
    overlooks(a_scene(told_to_stop="SIGHUP", scheduler=slurm(3600.0))),
    # the signal went to one rank only
    overlooks(a_scene([a_rank(0), ended(1, -15)], scheduler=slurm(3600.0))),
)


CANCELLED = "slurmstepd: error: *** STEP 123.0 ON node7 CANCELLED AT 2026-03-02T20:28:05"

test_explain = explain_table(
    "preempted",
    recognises(
        a_job(
            "submitit WARNING - Caught signal SIGHUP on node7: this job is preempted.",
        ),
        sure=0.75,
        what="the scheduler",
        saying=["it was preempted"],
    ),
    recognises(
        a_job("submitit WARNING - Caught signal SIGUSR2 on node7: this job is timed-out."),
        sure=0.75,
        what="the scheduler",
        saying=["its time limit was reached"],
    ),
    recognises(
        a_job("Message:  Pod was terminated in response to imminent node shutdown."),
        sure=0.75,
        what="the scheduler",
        saying=["it was preempted"],
    ),
    recognises(
        a_job(CANCELLED + " DUE TO JOB REQUEUE ***"),
        sure=0.92,
        saying=["it was requeued"],
    ),
    recognises(
        a_job(CANCELLED + " DUE TO TIME LIMIT ***"),
        sure=0.92,
        what="job 123.0",
        saying=["its time limit was reached", "sacct -j 123 "],
    ),
    recognises(
        a_job(CANCELLED + " DUE TO PREEMPTION ***"), sure=0.92, what="job", saying=["was preempted"]
    ),
    recognises(
        a_job("=>> PBS: job killed: walltime 3630 exceeded limit 3600"),
        sure=0.75,
        what="scheduler",
        saying=["its time limit was reached"],
    ),
    recognises(
        a_job(CANCELLED + " DUE TO TIME LIMIT ***", raised=[a_raise(1, "ValueError", "bad")]),
        sure=0.5,
        what="scheduler",
        saying=["check the errors before that first"],
    ),
    passes_over(a_job(CANCELLED + " ***")),
    passes_over(a_job(CANCELLED + " DUE TO NODE FAILURE ***")),
    passes_over(HEALTHY),
)
