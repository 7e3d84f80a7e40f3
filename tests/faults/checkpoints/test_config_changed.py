from __future__ import annotations

from holdfast.analysis.scene.checkpoints import CheckpointAccount
from holdfast.catalogue import by_slug
from holdfast.findings import Verdict
from tests.analysis.logs.patterns.made import wreckage
from tests.faults.checkpoints.test_restart_from_zero import resumed
from tests.faults.checkpoints.test_world_size_mismatch import REFUSED
from tests.faults.table import (
    explain_table,
    notices,
    overlooks,
    passes_over,
    recognises,
    run_table,
)
from tests.run.scenes import a_rank, a_scene, ended, lost_its_peer, words

CHANGED = words(
    "ResumeRefused",
    "/ckpts/step-000001200 is not from this run: the configuration has changed (lr: 0.1 then, "
    "0.01 now); it was saved by 4 ranks, this job has 2",
    hint="if that is meant: HOLDFAST_ACCEPT=config,world-size",
    slugs=("config-changed", "world-size-mismatch"),
)
OTHER_MODEL = words(
    "ResumeRefused",
    "/ckpts/step-000001200 is not from this run: its tensors differ (model.weight: [4, 4] then, "
    "[8, 4] now)",
    hint="start with the model it was saved from, or in an empty folder",
    slugs=("config-changed",),
)

test_run = run_table(
    "config-changed",
    notices(
        a_scene([ended(0, 1, said=CHANGED), ended(1, 1, said=CHANGED), lost_its_peer(2)]),
        ranks=[0, 1],
        victims=[2],
        certain=True,
        fatal=True,
        saying=["lr: 0.1 then, 0.01 now", "HOLDFAST_ACCEPT=config"],
    ),
    notices(
        a_scene([ended(0, 1, said=OTHER_MODEL), a_rank(1)]),
        ranks=[0],
        certain=True,
        fatal=True,
        saying=["model.weight", "empty folder"],
        not_saying=["HOLDFAST_ACCEPT"],
    ),
    notices(
        a_scene(
            attempt=1, checkpoints=CheckpointAccount(resumed=(resumed(40, accepted=("config",)),))
        ),
        ranks=[],
        certain=False,
        saying=["resumed at step 40 with a different configuration", "it is a different run"],
    ),
    overlooks(a_scene()),
    overlooks(a_scene([ended(0, 1, said=REFUSED)])),  # world-size-mismatch's alone
    overlooks(a_scene(attempt=1, checkpoints=CheckpointAccount(resumed=(resumed(40),)))),
)

SHAPE = (
    "\tsize mismatch for head.weight: copying a param with shape torch.Size([10, 64]) from "
    "checkpoint, the shape in current model is torch.Size([12, 64])."
)

test_explain = explain_table(
    "config-changed",
    recognises(
        wreckage(
            'While copying the parameter named "head.weight", whose dimensions in the model are '
            "torch.Size([12, 64]) and whose dimensions in the checkpoint are torch.Size([10, 64]), "
            "an exception occurred"
        ),
        sure=0.88,
        what="head.weight",
        saying=["torch.Size([10, 64]) then, torch.Size([12, 64]) now"],
    ),
    recognises(
        wreckage(
            "Exception: Cannot load model parameters from checkpoint last.pt; please ensure that "
            "the architectures match."
        ),
        sure=0.7,
        saying=["different architecture"],
    ),
    recognises(  # the lines that say what differs were cut away
        wreckage("RuntimeError: Error(s) in loading state_dict for GPT:"),
        sure=0.6,
        what="GPT",
        saying=["names or shapes of parameters differ"],
    ),
    passes_over(  # shares of different number of ranks
        wreckage(
            "RuntimeError: Error(s) in loading state_dict for FSDP:",
            "size mismatch for _flat_param: copying a param with shape torch.Size([4])",
        )
    ),
    recognises(
        wreckage(SHAPE),
        sure=0.88,
        what="head.weight",
        saying=["torch.Size([10, 64]) then, torch.Size([12, 64]) now"],
    ),
    recognises(  # cut after the old shape
        wreckage(SHAPE[: SHAPE.index("checkpoint,") + len("checkpoint,")]),
        sure=0.88,
        what="head.weight",
        saying=["head.weight has a different shape"],
    ),
    recognises(
        wreckage("ValueError: Size mismatch between saved [8] and current: [9] for model.bias"),
        sure=0.88,
        what="model.bias",
        saying=["[8] then, [9] now"],
    ),
    recognises(
        wreckage('\tMissing key(s) in state_dict: "head.weight", "head.bias". '),
        sure=0.8,
        what="head.weight",
        saying=["lacks parameters"],
    ),
    recognises(  # only the wrapper's prefix differs
        wreckage(
            '\tMissing key(s) in state_dict: "conv.weight", "conv.bias". ',
            '\tUnexpected key(s) in state_dict: "module.conv.weight", "module.conv.bias". ',
        ),
        sure=0.8,
        what="conv.weight",
        saying=["differ only by 'module.'", "model.module.state_dict()"],
    ),
    recognises(
        wreckage(
            "ValueError: loaded state dict contains a parameter group that doesn't match the size "
            "of optimizer's group"
        ),
        sure=0.88,
        saying=["different parameter groups"],
    ),
    recognises(
        wreckage(
            "AssertionError: hidden_size value from checkpoint (1024) is not equal to the input "
            "argument value (2048)."
        ),
        sure=0.93,
        what="hidden_size",
        saying=["1024 then, 2048 now"],
    ),
    recognises(
        wreckage(
            "holdfast.errors.ConfigError: ckpts/step-9 is not from this run: the configuration has "
            "changed (lr: 0.1 then, 0.01 now) [config-changed]"
        ),
        sure=0.96,
        saying=["lr: 0.1 then, 0.01 now"],
    ),
    passes_over(  # the number of ranks is another fault's
        wreckage(
            "AssertionError: tensor_model_parallel_size value from checkpoint (4) is not equal to "
            "the input argument value (2)."
        )
    ),
    passes_over(wreckage("size mismatch for x._flat_param: copying a param with shape [1] from")),
    passes_over(wreckage("RuntimeError: size mismatch, m1: [4 x 8], m2: [16 x 2]")),
)


def test_the_rank_s_sentence_is_quoted_once() -> None:
    scene = a_scene([ended(0, 1, said=CHANGED), a_rank(1)])
    verdict = next(by_slug("config-changed").ask_run(scene))
    assert isinstance(verdict, Verdict)
    assert "lr: 0.1 then, 0.01 now" in verdict.reason
    assert verdict.evidence[0].quote.startswith("rank 0 (pid")
    assert "lr: 0.1" not in verdict.evidence[0].quote
