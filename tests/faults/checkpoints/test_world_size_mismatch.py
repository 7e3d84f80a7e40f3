from __future__ import annotations

from typing import Any

from holdfast.analysis.machine import CheckpointItem, MachineFacts, Unread
from holdfast.analysis.scene.checkpoints import CheckpointAccount
from tests.analysis.logs.patterns.made import wreckage
from tests.faults.checkpoints.test_checkpoint_corrupt import item
from tests.faults.checkpoints.test_restart_from_zero import resumed
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
from tests.run.scenes import a_scene, ended, words


def ours(**changes: Any) -> CheckpointItem:
    told = {"kind": "holdfast", "step": 1200, "world_size": 8, "data": "per-rank"}
    return item(path="/home/kim/ckpts/step-000001200", **{**told, **changes})


def planned(*found: CheckpointItem, **plan: Any) -> MachineFacts:
    wanted = {"checkpoint_folders": ("/home/kim/ckpts",), "nproc_named": True, "nproc": 4, **plan}
    return a_machine(a_plan(**wanted), checkpoints=found)


test_check = check_table(
    "world-size-mismatch",
    speaks(
        "note",
        planned(ours()),
        saying=["saved by 8 ranks, 4 are planned", "resume()` will refuse", "step 1200"],
    ),
    speaks("note", planned(ours(), min_nodes=3, max_nodes=5), saying=["12 to 20 are planned"]),
    silent(planned(ours(world_size=4))),
    silent(planned(ours(), min_nodes=2, max_nodes=2)),
    silent(planned(ours(), min_nodes=1, max_nodes=4)),
    silent(planned(ours(data="global"))),
    silent(planned(ours(age=900.0), ours(age=60.0, world_size=4))),  # the newest counts
    not_applicable(planned(ours(), nproc_named=False), saying=["--nproc-per-node N"]),
    not_applicable(planned(item()), saying=["says how many ranks"]),
    not_applicable(a_machine(), saying=["add --ckpt DIR"]),
    skips(
        a_machine(a_plan(checkpoint_folders=("/c",)), checkpoints=Unread(why="the disk hangs")),
        saying=["the disk hangs"],
    ),
)

REFUSED = words(
    "ResumeRefused",
    "/ckpts/step-000001200 is not from this run: it was saved by 4 ranks, this job has 2, and "
    "the data position was saved per rank: samples would be skipped or seen twice",
    hint="if that is meant: HOLDFAST_ACCEPT=world-size",
    slugs=("world-size-mismatch",),
)

test_run = run_table(
    "world-size-mismatch",
    notices(
        a_scene([ended(0, 1, said=REFUSED), ended(1, 1, said=REFUSED)]),
        ranks=[0, 1],
        victims=[],
        certain=True,
        fatal=True,
        saying=["saved by 4 ranks, this job has 2", "HOLDFAST_ACCEPT=world-size"],
        not_saying=["[world-size-mismatch] |"],
    ),
    notices(
        a_scene(
            attempt=1,
            checkpoints=CheckpointAccount(
                resumed=(resumed(40, saved_world=8, accepted=("world-size",)),)
            ),
        ),
        ranks=[],
        certain=False,
        saying=["resumed with 4 ranks from a checkpoint of 8", "learning rate"],
    ),
    overlooks(a_scene()),
    overlooks(
        a_scene(attempt=1, checkpoints=CheckpointAccount(resumed=(resumed(40, saved_world=8),)))
    ),
    overlooks(  # told of an earlier attempt
        a_scene(
            attempt=2,
            checkpoints=CheckpointAccount(resumed=(resumed(40, accepted=("world-size",)),)),
        )
    ),
    overlooks(  # another library's words
        a_scene([ended(0, 1, said=words("ValueError", "oh [world-size-mismatch]"))])
    ),
)

test_explain = explain_table(
    "world-size-mismatch",
    recognises(
        wreckage(
            "[rank0]: megatron.core.dist_checkpointing.core.CheckpointingException: Invalid access "
            "pattern: 36 ShardedObject are missing"
        ),
        sure=0.5,
        what="parallel sizes",
        saying=["do not cover the checkpoint exactly once"],
    ),
    recognises(
        wreckage("No such file or directory: 'out/checkpoint-10/random_states_7.pkl'"),
        sure=0.4,
        what="random_states_7.pkl",
        saying=["different number of ranks"],
    ),
    passes_over(wreckage("ValueError: Invalid access pattern for user kim")),
    recognises(
        wreckage(
            "ZeRORuntimeException: The checkpoint being loaded used a DP world size of 8 but the "
            "current world size is 4. Automatic adjustment of ZeRO's optimizer state partitioning "
            "with a new world size is not currently supported."
        ),
        sure=0.95,
        what="world size",
        saying=["saved with world size 8 and is loaded with 4", "ds_to_universal"],
    ),
    recognises(
        wreckage("RuntimeError: Global world size at save time was 8, but at load time was 4"),
        sure=0.95,
        what="world size",
        saying=["8", "4"],
    ),
    recognises(  # the ranks are numbered otherwise, which need not be their number
        wreckage("RuntimeError: Local rank at save time was 1, but at load time was 0"),
        sure=0.75,
        what="rank",
        saying=["rank 1"],
    ),
    recognises(
        wreckage(
            "AssertionError: tensor_model_parallel_size value from checkpoint (4) is not equal to "
            "the input argument value (2)."
        ),
        sure=0.95,
        what="tensor_model_parallel_size",
        saying=["tensor model parallel size 4", "convert"],
    ),
    recognises(
        wreckage(
            "holdfast.errors.ConfigError: ckpts/step-9 is not from this run: it was saved by 4 "
            "ranks, this job has 2 [config-changed, world-size-mismatch]"
        ),
        sure=0.95,
        what="world size",
        saying=["it was saved by 4 ranks"],
    ),
    recognises(
        wreckage("size mismatch for _fsdp_wrapped_module._flat_param: copying a param with shape"),
        sure=0.6,
        what="_flat_param",
        saying=["a different size"],
    ),
    recognises(
        wreckage("FileNotFoundError: [Errno 2] No such file or directory: '/c/9/rank_3.pt'"),
        sure=0.4,
        what="/c/9/rank_3.pt",
        saying=["different number of ranks"],
    ),
    passes_over(
        wreckage(
            "AssertionError: hidden_size value from checkpoint (1024) is not equal to the input "
            "argument value (2048)."
        )
    ),
    passes_over(wreckage("FileNotFoundError: [Errno 2] No such file or directory: '/c/model.pt'")),
)
