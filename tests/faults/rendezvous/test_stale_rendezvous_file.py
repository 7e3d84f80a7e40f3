from __future__ import annotations

from typing import Any

from holdfast.analysis.machine import RendezvousFile, Unread
from tests.analysis.logs.patterns.made import wreckage
from tests.faults.machines import a_machine
from tests.faults.table import (
    check_table,
    explain_table,
    not_applicable,
    passes_over,
    recognises,
    silent,
    skips,
    speaks,
)


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


test_check = check_table(
    "stale-rendezvous-file",
    speaks(
        "error",
        a_machine(rendezvous_files=file()),
        saying=["left over", "`rm '/shared/my rdzv'`", "438 bytes", "2 hours", "make sure"],
    ),
    speaks(
        "warning",  # may be in use this moment: torch keeps no descriptor open
        a_machine(rendezvous_files=file(age=20.0)),
        saying=["less than a minute ago", "if no job uses it"],
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


# --- explain --------------------------------------------------------------------------

METHOD = "init_process_group(backend='nccl', init_method='file:///shared/rendezvous', rank=0)"
REFUSED = "NCCL WARN Net : Connect to 192.0.2.7<43210> failed : Connection refused"

test_explain = explain_table(
    "stale-rendezvous-file",
    recognises(
        wreckage(METHOD, f"[rank1]: {REFUSED}"),
        sure=0.75,
        what="/shared/rendezvous",
        saying=[
            "connected to 192.0.2.7 port 43210, where no rank listens",
            "ls -l /shared/rendezvous",
        ],
    ),
    recognises(
        wreckage(
            "RuntimeError: Timeout waiting for key: default_pg/0/0/1 after 1800000 ms",
        ),
        sure=0.4,
        what="the rendezvous file",
        saying=["timed out"],
    ),
    recognises(
        wreckage(METHOD, f"[rank1]: {REFUSED}", "[rank0]: RuntimeError: Address already in use"),
        sure=0.3,
        what="/shared/rendezvous",
        saying=["/shared/rendezvous"],
    ),
    passes_over(wreckage(METHOD)),
    passes_over(wreckage(f"[rank1]: {REFUSED}")),
)
