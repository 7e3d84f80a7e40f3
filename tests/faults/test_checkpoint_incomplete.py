import msgspec

from holdfast.facts import Unread
from holdfast.kept import Account
from tests.faults.machines import a_machine
from tests.faults.table import (
    foresee_table,
    not_applicable,
    notice_table,
    notices,
    overlooks,
    silent,
    skips,
    speaks,
)
from tests.faults.test_checkpoint_corrupt import ASIDE, NAMED, OLDER, item
from tests.job.scenes import a_scene

UNFINISHED = item(
    path="/home/kim/ckpts/step_1200",
    kind="dcp-folder",
    problem="incomplete: .metadata, which is written last, is missing",
)
TEMPORARY = item(path="/home/kim/ckpts/step_1300.pt.tmp", kind="temporary", problem="left behind")

test_foresee = foresee_table(
    "checkpoint-incomplete",
    speaks(
        "error",
        a_machine(NAMED, checkpoints=(UNFINISHED, OLDER)),
        saying=[
            "the newest sharded checkpoint was never finished: /home/kim/ckpts/step_1200",
            "resume from /home/kim/ckpts/step_1100.pt",
            "so it cannot be loaded",
        ],
    ),
    speaks(
        "error",
        a_machine(NAMED, checkpoints=(UNFINISHED,)),
        saying=["no whole checkpoint is beside it"],
    ),
    speaks(
        "warning",
        a_machine(NAMED, checkpoints=(msgspec.structs.replace(UNFINISHED, age=2.0), OLDER)),
        saying=["it may be a save under way"],
    ),
    speaks(
        "note",
        a_machine(NAMED, checkpoints=(item(path="/home/kim/ckpts/new.pt", age=60.0), UNFINISHED)),
        saying=["an older sharded save was never finished", "newer checkpoints are there"],
    ),
    speaks(
        "note",
        a_machine(NAMED, checkpoints=(TEMPORARY, OLDER)),
        saying=["temporary file behind: /home/kim/ckpts/step_1300.pt.tmp", "is untouched"],
    ),
    silent(a_machine(NAMED, checkpoints=(OLDER,))),
    silent(a_machine(NAMED, checkpoints=(item(kind="dcp-folder"),))),
    silent(
        a_machine(NAMED, checkpoints=(item(problem="cut short: empty"),))
    ),  # checkpoint-corrupt's
    skips(a_machine(NAMED, checkpoints=Unread(why="the disk hangs")), saying=["the disk hangs"]),
    not_applicable(a_machine(), saying=["add --ckpt DIR"]),
)

TORN = msgspec.structs.replace(ASIDE, why="rank-1.safetensors is missing")

test_notice = notice_table(
    "checkpoint-incomplete",
    notices(
        a_scene(attempt=1, kept=Account(set_aside=(TORN,))),
        ranks=[],
        certain=False,
        saying=["a part of a checkpoint is missing", "rank-1.safetensors is missing"],
    ),
    overlooks(a_scene()),
    overlooks(a_scene(attempt=1, kept=Account(set_aside=(ASIDE,)))),
)
