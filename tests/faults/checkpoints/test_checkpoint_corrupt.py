from typing import Any

import msgspec

from holdfast.analysis.machine import CheckpointItem, Unread
from holdfast.analysis.scene.checkpoints import CheckpointAccount, SetAside
from holdfast.analysis.scene.scene import LastWords
from holdfast.catalogue import by_slug
from tests.analysis.logs.patterns.made import traceback, wreckage
from tests.faults.machines import a_machine, a_plan
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
from tests.run.scenes import NOW, a_scene, ended, lost_its_peer, words

NAMED = a_plan(checkpoint_folders=("/home/kim/ckpts",))
TRUNCATED = "cut short: its zip directory is missing"


def item(**changes: Any) -> CheckpointItem:
    whole = CheckpointItem(
        path="/home/kim/ckpts/step_1200.pt", kind="torch-file", size=3 << 30, age=600.0, problem=""
    )
    return msgspec.structs.replace(whole, **changes)


OLDER = item(path="/home/kim/ckpts/step_1100.pt", age=4000.0)

test_check = check_table(
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
        saying=["no intact checkpoint is left"],
    ),
    speaks(
        "warning",  # a running job may be writing it right now
        a_machine(NAMED, checkpoints=(item(problem=TRUNCATED, age=4.0), OLDER)),
        saying=["unless a save is in progress right now"],
    ),
    speaks(
        "note",
        a_machine(NAMED, checkpoints=(item(), msgspec.structs.replace(OLDER, problem=TRUNCATED))),
        saying=["an older checkpoint is damaged", "there are newer ones"],
    ),
    speaks(
        "error",  # a shard is empty although the folder was finished
        a_machine(NAMED, checkpoints=(item(kind="dcp-folder", problem="__0_0.distcp is empty"),)),
        saying=["__0_0.distcp is empty"],
    ),
    speaks(
        "warning",
        a_machine(
            NAMED, checkpoints=(item(problem="cannot be read: EACCES", unreadable=True), OLDER)
        ),
        saying=["could not be read", "EACCES"],
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
            checkpoints=(
                item(),
                msgspec.structs.replace(OLDER, problem="cannot be read: EACCES", unreadable=True),
            ),
        ),
        saying=["an older checkpoint could not be read"],
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
                    incomplete=True,
                    path="/home/kim/ckpts/step_2",
                ),
                OLDER,
            ),
        )
    ),
    skips(a_machine(NAMED, checkpoints=Unread(why="the disk hangs")), saying=["the disk hangs"]),
    not_applicable(a_machine(), saying=["add --ckpt DIR"]),
)


def test_the_newest_is_described_by_its_manifest() -> None:
    ours = item(
        kind="holdfast", path="/c/step-000000040", age=90.0, step=40, world_size=4, config="1a2b"
    )
    (told,) = by_slug("checkpoint-corrupt").ask_check(a_machine(NAMED, checkpoints=(ours, OLDER)))
    assert (
        "the newest is 1 minute old: step 40, 4 ranks, configuration 1a2b; sizes match its "
        "manifest, resume() verifies the digests"
    ) in told.summary
    (other,) = by_slug("checkpoint-corrupt").ask_check(a_machine(NAMED, checkpoints=(OLDER,)))
    assert other.summary.endswith("is intact; the newest is 1 hour old")


ASIDE = SetAside(attempt=1, path="/c/damaged/step-000000040", why="rank-0.json: other bytes")

NONE_LEFT = words(
    "ResumeRefused",
    "none of the 2 checkpoints in /c can be used (step-000000040: rank-0.json is missing; "
    "step-000000020: rank-0.json is missing): not starting at step 0",
    hint="repair or restore one of them; to begin at step 0, set HOLDFAST_ACCEPT=fresh",
    slugs=("checkpoint-corrupt",),
)

ADVICE = (
    "Weights only load failed. In PyTorch 2.6, we changed the default value of the `weights_only` "
    "argument in `torch.load` from `False` to `True`. Re-running `torch.load` with `weights_only` "
    "set to `False` will likely succeed, but it can result in arbitrary code execution. Do it only "
    "if you got the file from a trusted source.\nPlease file an issue with the following so that "
    "we can make `weights_only=True` compatible with your use case: WeightsUnpickler error: \n\n"
    "Unsupported operand 149\n\nCheck the documentation of torch.load to learn more about types "
    "accepted by default with weights_only https://pytorch.org/docs/stable/generated/torch.load.html."
)
NOT_ALLOWED = (
    "Weights only load failed. This file can still be loaded, to do so you have two options, "
    "\x1b[1mdo those steps only if you trust the source of the checkpoint\x1b[0m. \n\t(1) In "
    "PyTorch 2.6, we changed the default value of the `weights_only` argument in `torch.load`. "
    "Re-running `torch.load` with `weights_only` set to `False` will likely succeed.\n\t(2) "
    "Alternatively, to load with `weights_only=True` please check the recommended steps in the "
    "following error message.\n\tWeightsUnpickler error: Unsupported global: GLOBAL numpy.dtype "
    "was not an allowed global by default."
)
IN_DCP = (
    "CheckpointException ranks:dict_keys([0])\nTraceback (most recent call last): (RANK 0)\n"
    '  File "/venv/site-packages/torch/distributed/checkpoint/utils.py", line 199, in all_gather\n'
    f"    result = map_fun()\n_pickle.UnpicklingError: {ADVICE}"
)


def loading(kind: str, text: str, path: str = "ckpts/last.pt", loader: str = "") -> LastWords:
    return msgspec.structs.replace(words(kind, text), loading=path, loader=loader)


NO_METADATA = loading(
    "CheckpointException",
    "CheckpointException ranks:dict_keys([0])\nTraceback (most recent call last): (RANK 0)\n"
    '  File "/venv/site-packages/torch/distributed/checkpoint/state_dict_loader.py", line 236, in '
    'local_step\n    raise AssertionError("metadata is None")\nAssertionError: metadata is None\n',
    "ckpt",
)


def not_loaded(said: LastWords) -> Any:
    return a_scene([ended(0, 1, said=said), ended(1, 1, said=said)])


test_run = run_table(
    "checkpoint-corrupt",
    notices(
        not_loaded(loading("UnpicklingError", ADVICE)),
        ranks=[0, 1],
        certain=True,
        fatal=False,  # it may still be written by another process
        saying=["could not load ckpts/last.pt: its contents make no sense", "previous checkpoint"],
        not_saying=["likely succeed", "weights_only"],
    ),
    notices(
        not_loaded(loading("CheckpointException", IN_DCP, "")),
        ranks=[0, 1],
        certain=True,
        saying=["could not load a checkpoint: its contents make no sense"],
        not_saying=["likely succeed", "weights_only"],
    ),
    notices(  # one after the other, in words of their own
        a_scene(
            [
                ended(0, 1, said=loading("CheckpointException", IN_DCP, "ckpt")),
                ended(1, 1, at=NOW - 0.1, said=loading("UnpicklingError", ADVICE, "ckpt")),
            ]
        ),
        ranks=[0, 1],
        certain=True,
        saying=["ranks 0-1 could not load ckpt"],
    ),
    notices(
        not_loaded(loading("EOFError", "", loader="serialization.py")),
        ranks=[0, 1],
        certain=True,
        saying=["it is empty"],
    ),
    notices(
        not_loaded(loading("KeyError", "7", loader="_weights_only_unpickler.py")),
        ranks=[0, 1],
        certain=True,
        saying=["its contents make no sense (KeyError: 7)"],
    ),
    notices(  # what torch 2.10 says of it, with the folder as it was found
        not_loaded(msgspec.structs.replace(NO_METADATA, metadata="present")),
        ranks=[0, 1],
        certain=True,
        saying=["could not load ckpt: its .metadata cannot be read"],
    ),
    overlooks(not_loaded(msgspec.structs.replace(NO_METADATA, metadata="missing"))),
    overlooks(not_loaded(NO_METADATA)),  # a path where there is none
    overlooks(not_loaded(words("UnpicklingError", ADVICE))),  # something else was unpickled
    overlooks(not_loaded(loading("UnpicklingError", NOT_ALLOWED))),
    overlooks(not_loaded(loading("FileNotFoundError", "[Errno 2] No such file: 'last.pt'"))),
    overlooks(not_loaded(loading("KeyError", "epoch", loader="train.py"))),
    notices(
        a_scene(attempt=1, checkpoints=CheckpointAccount(set_aside=(ASIDE,))),
        ranks=[],
        certain=False,
        saying=["skipped damaged checkpoint /c/damaged/step-000000040: rank-0.json: other bytes"],
    ),
    notices(
        a_scene(attempt=1, checkpoints=CheckpointAccount(set_aside=(ASIDE, ASIDE))),
        ranks=[],
        certain=False,
        saying=["(and 1 more)"],
    ),
    notices(
        a_scene([ended(0, 1, said=NONE_LEFT), lost_its_peer(1)]),
        ranks=[0],
        victims=[1],
        certain=True,
        fatal=True,  # the next attempt would find the same
        saying=["none of the 2 checkpoints in /c can be used", "HOLDFAST_ACCEPT=fresh"],
    ),
    overlooks(a_scene()),
    overlooks(a_scene(attempt=2, checkpoints=CheckpointAccount(set_aside=(ASIDE,)))),
    overlooks(
        a_scene(
            attempt=1,
            checkpoints=CheckpointAccount(
                set_aside=(msgspec.structs.replace(ASIDE, problem="missing"),)
            ),
        )
    ),
)

BROKEN = (
    "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory"
)
LOAD = '  File "/usr/lib/python3/site-packages/torch/serialization.py", line 1040, in load'

TORCH_LOAD = "/opt/venv/lib/python3/site-packages/torch/serialization.py:1040 load"

test_explain = explain_table(
    "checkpoint-corrupt",
    recognises(
        wreckage(*traceback("OSError: [Errno 22] Invalid argument", TORCH_LOAD, rank=1)),
        sure=0.9,
        rank=1,
        saying=["without its end"],
    ),
    recognises(
        wreckage(*traceback("EOFError", TORCH_LOAD, rank=1)),
        sure=0.9,
        rank=1,
        saying=["an empty file"],
    ),
    passes_over(
        wreckage(*traceback("OSError: [Errno 22] Invalid argument", "train.py:88 main", rank=1))
    ),
    recognises(
        wreckage(f"[rank2]: {BROKEN}"),
        sure=0.94,
        rank=2,
        what="the file being loaded",
        saying=["failed finding central directory", "rename"],
    ),
    recognises(
        wreckage(
            "_pickle.UnpicklingError: Weights only load failed. In PyTorch 2.6, we changed the "
            "default value of the `weights_only` argument in `torch.load` from `False` to `True`. "
            "Re-running `torch.load` with `weights_only` set to `False` will likely succeed, but "
            "it can result in arbitrary code execution. Do it only if you got the file from a "
            "trusted source.",
            "Please file an issue with the following so that we can make `weights_only=True` "
            "compatible with your use case: WeightsUnpickler error: ",
            "",
            "Unsupported operand 149",
        ),
        sure=0.92,
        what="the file",
        saying=["its contents make no sense"],
        not_saying=["likely succeed"],
    ),
    recognises(
        wreckage(
            "AssertionError: metadata is None; global metadata read failed: unexpected MARK found; "
            "rank local metadata read failed: [Errno 2] No such file or directory: "
            "'ckpt/__1.metadata'"
        ),
        sure=0.94,
        what="ckpt",
        saying=["ckpt is damaged", "its .metadata cannot be read (unexpected MARK found)"],
    ),
    recognises(  # the file is named, so no rank is to blame
        wreckage("[Torch] Loading checkpoint from /ckpts/90/model.pt...", f"[rank2]: {BROKEN}"),
        sure=0.94,
        what="/ckpts/90/model.pt",
        saying=["/ckpts/90/model.pt is damaged", "ls -l /ckpts/90/model.pt"],
    ),
    recognises(
        wreckage("RuntimeError: unexpected EOF, expected 17234 more bytes. The file might be corr"),
        sure=0.94,
        what="the file",
        saying=["17,234 bytes too early"],
    ),
    recognises(
        wreckage(
            "safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge"
        ),
        sure=0.94,
        what="the file",
        saying=["Git LFS"],
    ),
    recognises(  # the words of newer versions
        wreckage(
            "SafetensorError: Error while deserializing header: incomplete metadata, file not "
            "fully covered"
        ),
        sure=0.94,
        what="the file",
        saying=["not fully covered"],
    ),
    recognises(
        wreckage(LOAD, "_pickle.UnpicklingError: invalid load key, 'v'."),
        sure=0.85,
        what="the file",
        saying=["Git LFS pointer"],
    ),
    recognises(
        wreckage("_pickle.UnpicklingError: invalid load key, '<'."),
        sure=0.7,
        what="the file",
        saying=["a web page"],
    ),
    recognises(wreckage("EOFError: Ran out of input"), sure=0.5, what="the file", saying=["empty"]),
    recognises(
        wreckage(LOAD, "EOFError: Ran out of input"), sure=0.82, what="the file", saying=["empty"]
    ),
    passes_over(  # a child whose parent is gone reads a pipe, not a file
        wreckage("    self = reduction.pickle.load(from_parent)", "EOFError: Ran out of input")
    ),
    recognises(  # torch 0.4
        wreckage("RuntimeError: unexpected EOF. The file might be corrupted."),
        sure=0.94,
        what="the file",
        saying=["unexpected EOF"],
    ),
    recognises(
        wreckage("RuntimeError: storage has wrong size: expected -4669315570785868528 got 512"),
        sure=0.85,
        what="the file",
        saying=["several ranks write to one name"],
    ),
    recognises(
        wreckage(
            "RuntimeError: [enforce fail at inline_container.cc:222] . file not found: "
            "archive/data/94881266361728"
        ),
        sure=0.75,
        what="the file",
        saying=["archive/data/94881266361728"],
    ),
    recognises(
        wreckage("RuntimeError: PytorchStreamReader failed locating file data.pkl: file not found"),
        sure=0.75,
        what="the file",
        saying=["data.pkl"],
    ),
    recognises(
        wreckage("OSError: You seem to have cloned a repository without having git-lfs installed."),
        sure=0.94,
        what="the file",
        saying=["Git LFS pointer"],
    ),
    recognises(
        wreckage(LOAD, "_pickle.UnpicklingError: unpickling stack underflow"),
        sure=0.85,
        what="the file",
        saying=["underflow"],
    ),
    passes_over(wreckage("make: file not found: data/17/labels.txt")),
    passes_over(wreckage("_pickle.UnpicklingError: Weights only load failed. Re-running")),
    passes_over(  # another kind of file, but a whole one
        wreckage(
            "RuntimeError: PytorchStreamReader failed locating file constants.pkl: file not found"
        )
    ),
    passes_over(wreckage(LOAD, "[Torch] Loading checkpoint from /ckpts/90/model.pt...")),
)
