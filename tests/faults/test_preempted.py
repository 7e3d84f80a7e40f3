from __future__ import annotations

from holdfast.surroundings import Scheduler
from tests.faults.table import notice_table, notices, overlooks
from tests.job.scenes import a_rank, a_scene, ended


def slurm(left: float | None) -> Scheduler:
    return Scheduler(name="Slurm", job="123", left=left)


test_notice = notice_table(
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
            "no fault of the job",
            "sacct -j 123",
        ],
    ),
    # a rank that was told too has ended already: still nobody's fault
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
        saying=["the time limit of Slurm job 123 is reached (12.0 s past it)", "no fault"],
        not_saying=["preempted,"],
    ),
    notices(
        a_scene(told_to_stop="SIGTERM", scheduler=slurm(40.0)),
        ranks=[],
        certain=True,
        fatal=True,
        saying=["the time limit of Slurm job 123 is reached (40.0 s left)"],
    ),
    notices(
        a_scene(told_to_stop="SIGUSR1", scheduler=slurm(300.0)),
        ranks=[],
        certain=True,
        fatal=True,
        saying=["the warning it asked for, SIGUSR1, with 5 minutes left"],
        not_saying=["preempted,"],
    ),
    overlooks(a_scene(scheduler=slurm(3600.0))),
    overlooks(a_scene(told_to_stop="SIGTERM")),
    overlooks(a_scene(told_to_stop="SIGTERM", scheduler=slurm(None))),
    # the limit was moved since the start, so its end is unknown
    overlooks(a_scene(told_to_stop="SIGTERM", scheduler=slurm(-5000.0))),
    overlooks(a_scene(told_to_stop="SIGTERM", scheduler=Scheduler(name="Kubernetes", job="pod"))),
    # people, not schedulers
    overlooks(a_scene(told_to_stop="SIGINT", scheduler=slurm(3600.0))),
    overlooks(a_scene(told_to_stop="SIGHUP", scheduler=slurm(3600.0))),
    # somebody picked one rank
    overlooks(a_scene([a_rank(0), ended(1, -15)], scheduler=slurm(3600.0))),
)
