from __future__ import annotations

import msgspec

from holdfast.facts import MachineFacts, NcclLibrary, Unread
from tests.faults.machines import a_machine
from tests.faults.table import foresee_table, not_applicable, silent, skips, speaks


def libraries(*found: tuple[str, str]) -> MachineFacts:
    nccl = tuple(
        NcclLibrary(path=f"/lib{n}/libnccl.so.2", version=version, origin=origin)
        for n, (version, origin) in enumerate(found)
    )
    return a_machine(software=msgspec.structs.replace(a_machine().software, nccl=nccl))


OWN = ("2.29.7", "python package")

test_foresee = foresee_table(
    "version-skew",
    speaks(
        "warning",
        libraries(("2.21.5", "LD_PRELOAD"), OWN),
        saying=["LD_PRELOAD puts NCCL 2.21.5", "torch's own 2.29.7", "unset LD_PRELOAD"],
    ),
    speaks(
        "note",
        libraries(OWN, ("2.21.5", "system")),
        saying=["2 versions", "load 2.29.7 (/lib0/libnccl.so.2)", "2.21.5: /lib1", "nccl-tests"],
        not_saying=["LD_PRELOAD"],
    ),
    speaks(
        "note",  # the preloaded one is torch's; another lies elsewhere
        libraries(("2.29.7", "LD_PRELOAD"), OWN, ("2.18.1", "system")),
        saying=["2 versions"],
    ),
    speaks(
        "note",
        libraries(("", "LD_LIBRARY_PATH"), OWN, ("2.18.1", "system")),
        saying=["of unknown version"],
    ),
    silent(a_machine()),
    silent(libraries(OWN, ("2.29.7", "system"))),
    # a version we could not read is no proof of a difference
    silent(libraries(OWN, ("", "system"))),
    skips(a_machine(software=Unread(why="slow disk")), saying=["slow disk"]),
    not_applicable(libraries(), saying=["no libnccl"]),
)
