from __future__ import annotations

from typing import Any

from holdfast.analysis.machine import Bind, Leftovers, Orphan, Unread
from holdfast.analysis.scene.scene import SurvivingProcess
from tests.faults.machines import a_connection, a_machine, a_plan, a_port, a_process
from tests.faults.table import (
    check_table,
    notices,
    overlooks,
    run_table,
    silent,
    skips,
    speaks,
)
from tests.run.scenes import a_scene

TAKEN = (Bind(family="IPv6", error="EADDRINUSE"), Bind(family="IPv4", error="EADDRINUSE"))
NAMED = a_plan(port_origin="--port")


def orphan(pid: int, rank: int | None, run_id: str = "r7") -> Orphan:
    process = a_process(pid=pid, parent=1)
    sign = "TORCHELASTIC_RUN_ID is set and its parent is pid 1 (systemd)"
    return Orphan(process=process, rank=rank, run_id=run_id, sign=sign)


def left(*orphans: Orphan) -> Leftovers:
    return Leftovers(orphans=orphans, segments=(), stuck=())


def listening(pid: int) -> Any:
    return a_port(binds=TAKEN, listeners=(a_connection(owner=a_process(pid=pid)),))


test_check = check_table(
    "orphaned-workers",
    speaks(
        "warning",
        a_machine(leftovers=left(orphan(11, 0), orphan(12, 1))),
        saying=["2 ranks keep running", "rank 1 of run r7: pid 12", "up 2 hours", "`kill 11 12`"],
        not_saying=["holds port"],
    ),
    speaks(
        "warning",
        a_machine(leftovers=left(orphan(11, None, ""))),
        saying=["1 rank keeps running", "of an unnamed run: pid 11"],
    ),
    speaks(
        "error",
        a_machine(NAMED, port=listening(12), leftovers=left(orphan(11, 0), orphan(12, 1))),
        saying=["pid 12 holds port 29500", "`kill 11 12`"],
    ),
    speaks(
        "warning",  # a port that was not asked for
        a_machine(port=listening(12), leftovers=left(orphan(12, 1))),
        saying=["pid 12 holds port 29500"],
    ),
    speaks(
        "warning",  # another process holds the port
        a_machine(NAMED, port=listening(99), leftovers=left(orphan(12, 1))),
        saying=["1 rank keeps running"],
        not_saying=["holds port"],
    ),
    speaks(
        "warning",
        a_machine(NAMED, port=Unread(why="no answer"), leftovers=left(orphan(12, 1))),
        saying=["1 rank keeps running"],
    ),
    speaks(
        "warning",
        a_machine(a_plan(port=0), port=listening(12), leftovers=left(orphan(12, 1))),
        saying=["1 rank keeps running"],
        not_saying=["holds port"],
    ),
    silent(a_machine()),
    # a listener that still has its launcher is no orphan
    silent(a_machine(NAMED, port=listening(12))),
    skips(a_machine(leftovers=Unread(why="no /proc")), saying=["no /proc"]),
)

HELPER = SurvivingProcess(rank=2, pid=4711, name="python")
NAMELESS = SurvivingProcess(rank=None, pid=4712, name="sh")

test_run = run_table(
    "orphaned-workers",
    notices(
        a_scene(outlived=(HELPER,)),
        ranks=[],
        victims=[],
        certain=False,
        saying=["rank 2's child python (pid 4711) outlived it and was ended"],
    ),
    notices(
        a_scene(outlived=(HELPER, NAMELESS)),
        ranks=[],
        certain=False,
        saying=["rank 2's child python (pid 4711), a rank's child sh (pid 4712) outlived their"],
    ),
    notices(
        a_scene(outlived=tuple(SurvivingProcess(rank=0, pid=n, name="sh") for n in range(9))),
        ranks=[],
        certain=False,
        saying=["and 5 more outlived their ranks"],
    ),
    overlooks(a_scene()),
)
