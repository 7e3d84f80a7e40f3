from __future__ import annotations

from typing import Any

import msgspec

from holdfast.analysis.scene.checkpoints import (
    CheckpointAccount,
    FirstStepState,
    Resumed,
    Saved,
    ScriptSaved,
    SetAside,
)
from holdfast.analysis.scene.scene import Scene
from tests.analysis.logs.patterns.made import wreckage
from tests.analysis.source.launches import launched
from tests.analysis.source.made_sources import python
from tests.faults.table import (
    explain_table,
    flags,
    leaves,
    lint_table,
    notices,
    overlooks,
    passes_over,
    recognises,
    run_table,
)
from tests.run.scenes import a_scene, ended, words


def first(attempt: int = 0, **changes: Any) -> FirstStepState:
    seen = FirstStepState(
        attempt=attempt, digest="aaaa", optimizer_step=0, loaded=False, moved=True
    )
    return msgspec.structs.replace(seen, **changes)


def resumed(step: int, attempt: int = 1, **changes: Any) -> Resumed:
    path = "/ckpts/step-000000040" if step else ""
    told = Resumed(
        attempt=attempt, step=step, path=path, world_size=4, saved_world=4 if step else 0
    )
    return msgspec.structs.replace(told, **changes)


SAVED = Saved(
    attempt=0, step=40, path="/ckpts/step-000000040", bytes=9, stall=0.1, seconds=1.0, at=1.7e9
)


def restarted(**account: Any) -> Scene:
    """A second attempt, after one that had come to step 57."""
    return a_scene(attempt=1, checkpoints=CheckpointAccount(**{"reached": 57, **account}))


GONE = words(
    "CheckpointsGone",
    "an earlier attempt of this run saved /ckpts/step-000000040, and now there is no checkpoint in "
    "/ckpts: not starting at step 0",
    hint="is its disk mounted? To begin at step 0 anyway, set HOLDFAST_ACCEPT=fresh",
    slugs=("restart-from-zero",),
)

test_run = run_table(
    "restart-from-zero",
    notices(
        a_scene([ended(0, 1, said=GONE), ended(1, 1, said=GONE)], attempt=1),
        ranks=[0, 1],
        certain=True,
        saying=["saved /ckpts/step-000000040, and now there is no checkpoint", "HOLDFAST_ACCEPT"],
    ),
    notices(
        restarted(first_steps=(first(), first(1))),
        ranks=[],
        certain=False,
        saying=["the job restarted from step 0", "equal those", "57 steps are repeated"],
        not_saying=["likely"],
    ),
    notices(
        restarted(first_steps=(first(), first(1, digest="bbbb"))),
        ranks=[],
        certain=False,
        saying=["the job restarted from step 0", "nothing was loaded", "likely, not certain"],
    ),
    notices(
        restarted(
            first_steps=(first(optimizer_step=500), first(1, optimizer_step=500)),
            reached=540,
            base=500,
        ),
        ranks=[],
        certain=False,
        saying=["the job restarted from step 500", "40 steps are repeated"],
    ),
    notices(  # our library: exactly, whatever the parameters look like
        restarted(resumed=(resumed(0),), first_steps=(first(), first(1, digest="bbbb"))),
        ranks=[],
        certain=False,
        saying=["nothing had been saved before the fault", 'every="auto"'],
    ),
    notices(
        restarted(
            resumed=(resumed(0),),
            saves=(SAVED,),
            set_aside=(SetAside(attempt=1, path="/ckpts/damaged/step-000000040", why="bits"),),
        ),
        ranks=[],
        certain=False,
        saying=["found no usable checkpoint, although step 40 had been saved", "bits"],
    ),
    notices(  # it saves, and never asks for what it saved
        restarted(saves=(SAVED,), first_steps=(first(), first(1, digest="bbbb"))),
        ranks=[],
        certain=False,
        saying=["without `resume()`", "although /ckpts/step-000000040 exists"],
    ),
    overlooks(a_scene()),
    overlooks(restarted()),  # not at its first step yet
    overlooks(restarted(resumed=(resumed(40),), base=40)),
    overlooks(restarted(first_steps=(first(), first(1, optimizer_step=40)), base=40)),
    overlooks(restarted(first_steps=(first(), first(1, digest="bbbb", other_ways=True)))),
    overlooks(  # parameters that never change are equal after a resume, too
        restarted(first_steps=(first(moved=False), first(1, loaded=True)))
    ),
    notices(
        restarted(
            first_steps=(first(), first(1)),
            script_saved=ScriptSaved(attempt=0, step=40, path="out/ckpt.pt", optimizer=True),
        ),
        ranks=[],
        certain=False,
        saying=["the script saved out/ckpt.pt at step 40"],
    ),
    overlooks(restarted(first_steps=(first(), first(1)), reached=0)),  # nothing was lost
    overlooks(a_scene(attempt=0, checkpoints=CheckpointAccount(first_steps=(first(),), reached=9))),
)

SAVED_LINE = "  successfully saved checkpoint from iteration    1200 to /ckpts"
RESTART = "[default] Worker group FAILED. 2/3 attempts left; will restart worker group"
EMPTY = "WARNING: could not find the metadata file /other/latest_checkpointed_iteration.txt"
LOADED = " loading checkpoint from /ckpts at iteration 1200"

test_explain = explain_table(
    "restart-from-zero",
    recognises(
        wreckage("step 0: loss 6.9", SAVED_LINE, RESTART, "step 0: loss 6.9"),
        sure=0.7,
        saying=["saved at step 1200", "nothing was loaded"],
    ),
    recognises(
        wreckage(SAVED_LINE, EMPTY),
        sure=0.7,
        what="/other/latest_checkpointed_iteration.txt",
        saying=["looked for a checkpoint and found none"],
    ),
    passes_over(
        wreckage(SAVED_LINE, RESTART, LOADED, "step 0: loss 6.9")
    ),  # its count begins again there
    passes_over(wreckage(EMPTY, "step 0: loss 6.9", SAVED_LINE)),  # the very first start
    passes_over(wreckage(RESTART, "step 0: loss 6.9")),  # nothing had been saved
    passes_over(wreckage(SAVED_LINE, RESTART)),  # the second attempt never came to a step
)

TRAIN = """
import argparse, torch
import torch.distributed as dist
IMPORT

def main(model, optimizer, loader):
    parser = argparse.ArgumentParser()
    parser.add_argument("--resume", default=None)
    args = parser.parse_args()
    LOAD
    for batch in loader:
        loss = model(batch)
        loss.backward()
        optimizer.step()
"""
RESTARTS = launched("torchrun", max_restarts="3", nnodes="2")


def train(load: str = "pass", more: str = "") -> str:
    return TRAIN.replace("LOAD", load).replace("IMPORT", more)


ASKED = "if args.resume:\n        model.load_state_dict(torch.load(args.resume))"

OWN = """
    import holdfast

    def train(model, state, loader):
        ckpt = holdfast.Checkpoint("ckpts", state)
        ckpt.resume()
        for batch in loader:
            model(batch).backward()
            ckpt.step()
"""

test_lint = lint_table(
    "restart-from-zero",
    flags(
        "warning",
        python(OWN.replace("ckpt.resume()", "pass")),
        lines=[4],
        saying=["ckpt.resume() is never called", "step 0"],
    ),
    flags(
        "warning",
        python(OWN.replace("ckpt.step()", "pass")),
        lines=[4],
        saying=["ckpt.step() is never called: nothing is saved"],
    ),
    leaves(python(OWN)),
    leaves(python(OWN.replace("ckpt.resume()", "begin(ckpt)"))),  # another function may do it
    leaves(python(OWN.replace("ckpt.resume()", "pass").replace(".backward()", ".item()"))),
    leaves(python(OWN.replace("ckpt.resume()", "pass").replace("ckpt", "self.ckpt"))),
    flags(
        "warning",
        python(
            "from torch.distributed.launcher import LaunchConfig, elastic_launch\n"
            "def main():\n    net(x).sum().backward()\n"
            "elastic_launch(LaunchConfig(max_restarts=2, **nodes), main)()"
        ),
        lines=[3],
        saying=["LaunchConfig(max_restarts=2)"],
    ),
    leaves(
        python(
            "from torch.distributed.launcher import LaunchConfig, elastic_launch\n"
            "def main():\n    net(x).sum().backward()\n"
            "elastic_launch(LaunchConfig(max_restarts=0, **nodes), main)()"
        )
    ),
    leaves(  # its state is handed on by those that stay
        python(
            "import horovod.torch as hvd\nnet(x).sum().backward()\n"
            "state = hvd.elastic.TorchState(model=net)"
        )
    ),
    flags(
        "warning",
        python(train(), started_by=RESTARTS),
        lines=[12],
        saying=["torchrun --max-restarts=3", "step 0", "resume()"],
    ),
    flags(
        "warning",
        python(train(), started_by=launched("torchrun", nnodes="1:4")),
        lines=[12],
        saying=["--nnodes=1:4"],
    ),
    flags(
        "warning",
        python(train("dataset = datasets.load_dataset('c4')"), started_by=RESTARTS),
        lines=[12],
        saying=["loads no checkpoint"],
    ),
    flags(
        "warning",
        python(train("n = os.environ['TORCHELASTIC_RESTART_COUNT']", "import os")),
        lines=[12],
        saying=["counts its restarts"],
    ),
    flags(
        "warning",
        python(train(ASKED), started_by=RESTARTS),
        lines=[10],
        saying=["only with --resume", "os.path.exists"],
    ),
    flags(
        "warning",
        python(
            "from transformers import Trainer\nimport torch\ntrainer = Trainer(model)\n"
            "trainer.train()\n",
            started_by=RESTARTS,
        ),
        lines=[4],
        saying=["loads no checkpoint"],
    ),
    leaves(
        python(
            "from transformers import Trainer\nimport torch\ntrainer = Trainer(model)\n"
            "trainer.train(resume_from_checkpoint=True)\n",
            started_by=RESTARTS,
        )
    ),
    leaves(python(train())),  # nothing restarts it, as far as we see
    leaves(python(train(), started_by=launched("torchrun", max_restarts="0"))),
    leaves(python(train("state = torch.load('ckpt.pt')"), started_by=RESTARTS)),
    leaves(python(train("step = manager.maybe_restore(model)"), started_by=RESTARTS)),
    leaves(python(train(more="from ours import CheckpointManager"), started_by=RESTARTS)),
    leaves(python(train("step = ckpt.resume()", "import holdfast"), started_by=RESTARTS)),
    leaves(
        python(
            train(ASKED),
            started_by=launched("torchrun", max_restarts="3", given="--resume last.pt"),
        )
    ),
    leaves(python(train(ASKED.replace("args.resume:", "os.path.exists(p):")), started_by=RESTARTS)),
    leaves(python("import torch\nprint(torch.ones(1))\n", started_by=RESTARTS)),
)
