from __future__ import annotations

from typing import Any

from holdfast.analysis.machine import Bind, Leftovers, Orphan, ShmSegment, Unread
from tests.analysis.logs.patterns.made import wreckage
from tests.faults.machines import GIB, a_connection, a_machine, a_plan, a_port, a_process
from tests.faults.table import (
    check_table,
    explain_table,
    passes_over,
    recognises,
    silent,
    skips,
    speaks,
)

TAKEN = (Bind(family="IPv6", error="EADDRINUSE"), Bind(family="IPv4", error="EADDRINUSE"))
NAMED = a_plan(port_origin="--port")
ORPHAN = Orphan(process=a_process(parent=1), rank=0, run_id="r7", sign="its parent is pid 1")
HELD = a_port(binds=TAKEN, listeners=(a_connection(owner=a_process(parent=1)),))


def segment(path: str = "/dev/shm/nccl-AbC", **changes: Any) -> ShmSegment:
    values: dict[str, Any] = {
        "path": path,
        "size": 32 << 20,
        "age": 86400.0,
        "mapped_by": (),
        "all_visible": True,
    }
    return ShmSegment(**(values | changes))


def left(*segments: ShmSegment, orphans: tuple[Orphan, ...] = ()) -> Leftovers:
    return Leftovers(orphans=orphans, segments=segments, stuck=())


MANY = [segment(f"/dev/shm/torch_{n}", size=n << 20) for n in range(1, 11)]

test_check = check_table(
    "stale-process",
    speaks(
        "error",
        a_machine(NAMED, port=HELD, leftovers=left(orphans=(ORPHAN,))),
        saying=[
            "a process of an earlier run",
            "holds port 29500",
            "pid 4711",
            "`kill 4711`",
            "parent is pid 1",
        ],
    ),
    speaks(
        "warning",
        a_machine(port=HELD, leftovers=left(orphans=(ORPHAN,))),
        saying=["holds port 29500"],
    ),
    speaks(
        "note",
        a_machine(leftovers=left(segment())),
        saying=[
            "32 MiB of 64 GiB in /dev/shm is used by 1 unused segment",
            "`rm /dev/shm/nccl-AbC`",
            "1 day old",
        ],
    ),
    speaks(
        "warning",
        a_machine(leftovers=left(segment(size=7 * GIB))),
        saying=["7 GiB of 64 GiB", "not have enough shared memory"],
    ),
    speaks(
        "note",
        a_machine(leftovers=left(*MANY)),
        saying=["10 unused segments", "55 MiB", "`rm /dev/shm/torch_10 ", "and 2 smaller ones"],
        not_saying=["torch_1 ", "torch_2`"],
    ),
    speaks(
        "note",  # without the size of /dev/shm its share is unknown
        a_machine(leftovers=left(segment(size=7 * GIB)), shm=Unread(why="no /dev/shm")),
        saying=["7 GiB in /dev/shm"],
    ),
    silent(a_machine()),
    silent(a_machine(leftovers=left(segment(mapped_by=(77,))))),
    silent(a_machine(leftovers=left(segment(all_visible=False)))),
    silent(a_machine(leftovers=left(segment(age=3.0)))),
    silent(a_machine(a_plan(port=0))),
    # an orphan elsewhere, and a listener that is none
    silent(
        a_machine(
            NAMED,
            port=a_port(binds=TAKEN, listeners=(a_connection(owner=a_process(pid=5)),)),
            leftovers=left(orphans=(ORPHAN,)),
        )
    ),
    silent(
        a_machine(
            NAMED,
            port=a_port(listeners=(a_connection(owner=Unread(why="not permitted")),)),
            leftovers=left(orphans=(ORPHAN,)),
        )
    ),
    skips(a_machine(leftovers=Unread(why="no /proc")), saying=["no /proc"]),
)


# --- explain --------------------------------------------------------------------------

test_explain = explain_table(
    "stale-process",
    recognises(
        wreckage("RuntimeError: Address already in use"),
        sure=0.3,
        what="holder of the port",
        saying=["may still be listening"],
    ),
    passes_over(wreckage("RuntimeError: Connection refused")),
)
