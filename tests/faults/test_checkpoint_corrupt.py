from typing import Any

import msgspec

from holdfast.facts import CheckpointItem, Unread
from tests.faults.machines import a_machine, a_plan
from tests.faults.table import foresee_table, not_applicable, silent, skips, speaks

NAMED = a_plan(checkpoint_folders=("/home/kim/ckpts",))
TRUNCATED = "cut short: its zip directory is missing"


def item(**changes: Any) -> CheckpointItem:
    whole = CheckpointItem(
        path="/home/kim/ckpts/step_1200.pt", kind="torch-file", size=3 << 30, age=600.0, problem=""
    )
    return msgspec.structs.replace(whole, **changes)


OLDER = item(path="/home/kim/ckpts/step_1100.pt", age=4000.0)

test_foresee = foresee_table(
    "checkpoint-corrupt",
    speaks(
        "error",
        a_machine(NAMED, checkpoints=(item(problem=TRUNCATED), OLDER)),
        saying=[
            "the newest checkpoint is damaged: /home/kim/ckpts/step_1200.pt",
            "a resume from this file will fail",
            "resume from /home/kim/ckpts/step_1100.pt (1 hour old)",
            "3 GiB, 10 minutes old",
        ],
    ),
    speaks(
        "error",
        a_machine(NAMED, checkpoints=(item(problem=TRUNCATED),)),
        saying=["no whole checkpoint is left"],
    ),
    speaks(
        "warning",  # a running job may be writing it right now
        a_machine(NAMED, checkpoints=(item(problem=TRUNCATED, age=4.0), OLDER)),
        saying=["unless a save is under way there now"],
    ),
    speaks(
        "note",
        a_machine(NAMED, checkpoints=(item(), msgspec.structs.replace(OLDER, problem=TRUNCATED))),
        saying=["an older checkpoint is damaged", "newer ones are there"],
    ),
    speaks(
        "error",  # a shard is empty although the folder was finished
        a_machine(NAMED, checkpoints=(item(kind="dcp-folder", problem="__0_0.distcp is empty"),)),
        saying=["__0_0.distcp is empty"],
    ),
    speaks(
        "warning",
        a_machine(NAMED, checkpoints=(item(problem="cannot be read: EACCES"), OLDER)),
        saying=["could not be looked into", "EACCES"],
        not_saying=["damaged"],
    ),
    speaks(
        "error",  # the folder was finished, its metadata broke afterwards
        a_machine(NAMED, checkpoints=(item(kind="dcp-folder", problem="damaged: .metadata"),)),
        saying=["damaged: .metadata"],
    ),
    speaks(
        "note",
        a_machine(
            NAMED,
            checkpoints=(item(), msgspec.structs.replace(OLDER, problem="cannot be read: EACCES")),
        ),
        saying=["an older checkpoint could not be looked into"],
    ),
    silent(a_machine(NAMED, checkpoints=(item(), OLDER))),
    silent(a_machine(NAMED)),
    silent(  # never finished: checkpoint-incomplete's
        a_machine(
            NAMED,
            checkpoints=(
                item(kind="temporary", problem="left behind", path="/home/kim/ckpts/a.tmp"),
                item(
                    kind="dcp-folder",
                    problem="incomplete: .metadata is missing",
                    path="/home/kim/ckpts/step_2",
                ),
                OLDER,
            ),
        )
    ),
    skips(a_machine(NAMED, checkpoints=Unread(why="the disk hangs")), saying=["the disk hangs"]),
    not_applicable(a_machine(), saying=["add --ckpt DIR"]),
)
