import msgspec

from holdfast.analysis.machine import Unread
from holdfast.analysis.scene.checkpoints import CheckpointAccount
from tests.analysis.logs.patterns.made import wreckage
from tests.faults.checkpoints.test_checkpoint_corrupt import (
    ASIDE,
    NAMED,
    NO_METADATA,
    OLDER,
    item,
    not_loaded,
)
from tests.faults.machines import a_machine
from tests.faults.table import (
    check_table,
    explain_table,
    not_applicable,
    notices,
    overlooks,
    passes_over,
    recognises,
    run_table,
    silent,
    skips,
    speaks,
)
from tests.run.scenes import a_scene

UNFINISHED = item(
    path="/home/kim/ckpts/step_1200",
    kind="dcp-folder",
    problem="incomplete: .metadata, which is written last, is missing",
    incomplete=True,
)
TEMPORARY = item(path="/home/kim/ckpts/step_1300.pt.tmp", kind="temporary", problem="left behind")

test_check = check_table(
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
        saying=["no complete checkpoint exists"],
    ),
    speaks(
        "warning",
        a_machine(NAMED, checkpoints=(msgspec.structs.replace(UNFINISHED, age=2.0), OLDER)),
        saying=["may be a save in progress"],
    ),
    speaks(
        "note",
        a_machine(NAMED, checkpoints=(item(path="/home/kim/ckpts/new.pt", age=60.0), UNFINISHED)),
        saying=["an older sharded save was never finished", "there are newer checkpoints"],
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

TORN = msgspec.structs.replace(ASIDE, why="rank-1.safetensors is missing", problem="missing")

test_run = run_table(
    "checkpoint-incomplete",
    notices(
        not_loaded(msgspec.structs.replace(NO_METADATA, metadata="missing")),
        ranks=[0, 1],
        certain=True,
        fatal=False,
        saying=[
            "ranks 0-1 could not load ckpt: it has no .metadata",
            "newest complete checkpoint",
        ],
    ),
    overlooks(not_loaded(msgspec.structs.replace(NO_METADATA, metadata="present"))),
    overlooks(not_loaded(NO_METADATA)),
    notices(
        a_scene(attempt=1, checkpoints=CheckpointAccount(set_aside=(TORN,))),
        ranks=[],
        certain=False,
        saying=["skipped incomplete checkpoint", "rank-1.safetensors is missing"],
    ),
    overlooks(a_scene()),
    overlooks(a_scene(attempt=1, checkpoints=CheckpointAccount(set_aside=(ASIDE,)))),
)

test_explain = explain_table(
    "checkpoint-incomplete",
    recognises(  # cut before the closing quote
        wreckage(
            "FileNotFoundError: [Errno 2] No such file or directory: "
            "'out/checkpoint-10/random_states_1.pkl"
        ),
        sure=0.5,
        what="out/checkpoint-10/random_states_1.pkl",
        saying=["is missing"],
    ),
    recognises(
        wreckage("No such file or directory: 'out/checkpoint-500/trainer_state.json'"),
        sure=0.5,
        what="trainer_state.json",
        saying=["is missing"],
    ),
    passes_over(wreckage("No such file or directory: 'data/train.json'")),
    recognises(
        wreckage("FileNotFoundError: [Errno 2] No such file or directory: '/ckpts/90/.metadata'"),
        sure=0.93,
        what="/ckpts/90/.metadata",
        saying=["writes it last", "ls -la /ckpts/90"],
    ),
    recognises(
        wreckage(
            "ValueError: Expected 8 of '*_optim_states.pt' under '/ckpts/90' but found 5 files. "
            "Possibly due to an overwrite of an old checkpoint"
        ),
        sure=0.9,
        what="/ckpts/90",
        saying=["5 of 8 files"],
    ),
    recognises(
        wreckage(
            "Unable to find latest file at /ckpts/latest, if trying to load latest checkpoint"
        ),
        sure=0.6,
        what="/ckpts/latest",
        saying=["no finished save is recorded at /ckpts/latest"],
    ),
    recognises(
        wreckage(
            "FileNotFoundError: [Errno 2] No such file or directory: "
            "'/m/model-00002-of-00003.safetensors'"
        ),
        sure=0.5,
        what="/m/model-00002-of-00003.safetensors",
        saying=["is missing"],
    ),
    passes_over(
        wreckage("FileNotFoundError: [Errno 2] No such file or directory: 'data/train.csv'")
    ),
    passes_over(wreckage("PackageNotFoundError: No package metadata was found for flash-attn")),
)
