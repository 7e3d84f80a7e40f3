from __future__ import annotations

from typing import Any

from holdfast.facts import RendezvousFile, Unread
from tests.faults.machines import a_machine
from tests.faults.table import foresee_table, not_applicable, silent, skips, speaks


def file(**changes: Any) -> tuple[RendezvousFile, ...]:
    values: dict[str, Any] = {
        "variable": "INIT_METHOD",
        "path": "/shared/my rdzv",
        "exists": True,
        "size": 438,
        "age": 7300.0,
        "held_by": (),
    }
    return (RendezvousFile(**(values | changes)),)


test_foresee = foresee_table(
    "stale-rendezvous-file",
    speaks(
        "error",
        a_machine(rendezvous_files=file()),
        saying=["left over", "`rm '/shared/my rdzv'`", "438 bytes", "2 hours", "make sure"],
    ),
    speaks(
        "warning",  # may be in use this moment: torch keeps no descriptor open
        a_machine(rendezvous_files=file(age=20.0)),
        saying=["moments ago", "if no job uses it"],
    ),
    speaks(
        "note",
        a_machine(rendezvous_files=file(held_by=(4711,))),
        saying=["pid 4711 has it open", "export INIT_METHOD=file://"],
        not_saying=["rm "],
    ),
    silent(a_machine(rendezvous_files=file(exists=False, size=0))),
    silent(a_machine(rendezvous_files=file(size=0))),
    skips(a_machine(rendezvous_files=Unread(why="NFS hangs")), saying=["NFS hangs"]),
    not_applicable(a_machine(), saying=["no file:// rendezvous"]),
)
