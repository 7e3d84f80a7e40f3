from __future__ import annotations

from typing import Any

from holdfast.analysis.scene.checkpoints import CheckpointAccount, Saved
from holdfast.analysis.scene.numbers import NotFinite, RankNumbers
from holdfast.analysis.scene.scene import Scene
from tests.analysis.logs.patterns.made import wreckage
from tests.faults.table import (
    explain_table,
    notices,
    overlooks,
    passes_over,
    recognises,
    run_table,
)
from tests.run.scenes import NOW, a_rank, a_scene


def seen(rank: int, step: int, **more: Any) -> NotFinite:
    fields = {"attempt": 0, "what": "loss", "value": "nan", "row": 1, "heard_at": NOW - 4.0}
    return NotFinite(rank=rank, step=step, **(fields | more))  # type: ignore[arg-type]


def lasting(rank: int, step: int, **more: Any) -> list[NotFinite]:
    return [seen(rank, step + n, row=n + 1, **more) for n in range(3)]


def job(*reports: NotFinite, ranks: int = 4, **changes: Any) -> Scene:
    numbers = RankNumbers(not_finite=reports)
    return a_scene([a_rank(r) for r in range(ranks)], numbers=numbers, **changes)


SPREAD = [*lasting(2, 17), *(one for r in (0, 1, 3) for one in lasting(r, 18))]
GRADIENTS = [seen(r, 17, what="gradients") for r in range(4)]
SAVES = CheckpointAccount(
    saves=tuple(
        Saved(attempt=0, step=step, path=f"/c/{step}", bytes=1, stall=0.0, seconds=1.0, at=1.7e9)
        for step in (10, 20)
    )
)

test_run = run_table(
    "nan-loss",
    notices(
        job(*SPREAD, checkpoints=SAVES),
        ranks=[2],
        victims=[0, 1, 3],
        certain=False,
        saying=[
            "the loss of rank 2 (pid 4002) is nan, first, at step 17, later on ranks 0-1,3",
            "look at the batch of rank 2",
            "resume from /c/10",
        ],
    ),
    # With DDP the gradients are the same on all ranks; the loss says whose they were.
    notices(job(seen(2, 17), *GRADIENTS), ranks=[2], victims=[0, 1, 3], certain=False,
            saying=["the loss of rank 2"]),
    notices(job(*GRADIENTS), ranks=[], certain=False,
            saying=["the gradients are nan on ranks 0-3 at once at step 17", "learning rate"]),
    notices(job(*(one for r in range(4) for one in lasting(r, 9, value="inf"))), ranks=[],
            certain=False, saying=["the loss is inf on ranks 0-3 at once at step 9"]),
    # All ranks have ended by now.
    notices(job(*SPREAD, ranks=0), ranks=[2], certain=False, saying=["the loss of rank 2 is nan"]),
    # FSDP: rank 0 holds the shard, and any rank may have caused it.
    notices(job(seen(0, 17, what="gradients"), *(one for r in range(4) for one in lasting(r, 18))),
            ranks=[], certain=False, saying=["the gradients are nan on rank 0 at step 17"]),
    notices(job(*lasting(0, 9), ranks=1), ranks=[], certain=False, saying=["the loss is nan at"]),
    notices(job(*lasting(1, 9)), ranks=[1], certain=False, saying=["the loss of rank 1"]),
    overlooks(a_scene()),
    overlooks(job(seen(2, 17), seen(2, 40))),  # over empty batches: nothing came of it
    overlooks(job(seen(0, 17, what="gradients", value="inf"))),  # did not fit its type, once
    overlooks(job(*SPREAD, attempt=1)),  # it was restarted since
    # Rank 2 may have been first, and has not been heard yet.
    overlooks(job(*(one for r in (0, 1, 3) for one in lasting(r, 18, heard_at=NOW - 0.5)))),
)  # fmt: skip

HF = "{'loss': nan, 'grad_norm': nan, 'learning_rate': 5e-05, 'epoch': 0.1}"
MEGATRON = (
    "RuntimeError: Rank 3, node n7, device 3, iteration 2: Unexpected result nan "
    "(message='found NaN in local forward loss calculation')"
)

test_explain = explain_table(
    "nan-loss",
    recognises(wreckage(*[f"[rank0]: {HF}"] * 3), sure=0.55, rank=None,
               saying=["the loss was nan"]),
    recognises(wreckage("iter 7: loss nan, time 12ms"), sure=0.35, rank=None,
               saying=["was nan at step 7"]),
    recognises(wreckage(*[f" iteration {n}/ 9 | lm loss: NAN | grad norm: 1" for n in range(3, 9)]),
               sure=0.55, rank=None, saying=["was nan at step 3"]),
    recognises(wreckage(*[f"step: {n}  loss:      nan  grad_norm: 1.0" for n in range(3)]),
               sure=0.55, rank=None, saying=["loss was nan"]),
    recognises(wreckage(f"[rank3]: {MEGATRON}"), sure=0.9, rank=3,
               saying=["on rank 3 at iteration 2"]),
    recognises(wreckage("[rank1]: AssertionError: Rank 1: found NaN in local forward loss "
                        "calculation. Device: 1, node: n7"), sure=0.9, rank=1, saying=["rank 1"]),
    recognises(wreckage("[rank0]: ValueError: The loss returned in `training_step` is nan."),
               sure=0.9, rank=0, saying=["on rank 0"]),
    recognises(wreckage("[rank0]: FloatingPointError: Minimum loss scale reached (0.0001). Your "
                        "loss is probably exploding."), sure=0.9, rank=None, saying=["not finite"]),
    recognises(wreckage("[rank0]: Exception: Current loss scale already at minimum - cannot "
                        "decrease scale anymore. Exiting run."), sure=0.9, rank=None,
               saying=["not finite"]),
    recognises(wreckage("[rank2]: RuntimeError: Function 'LogBackward0' returned nan values in its "
                        "0th output."), sure=0.9, rank=None, saying=["backward of Log"]),
    # Each rank prints its own: the first one had the batch or the GPU.
    recognises(wreckage(*[f"[rank{r}]: step {n} loss nan" for n in range(7, 10) for r in range(4)
                          if n > 7 or r == 2]), sure=0.55, rank=2,
               saying=["at step 7, on rank 2 first, later on the others"]),
    recognises(wreckage(*[f"[rank{r}]: step {n} loss nan" for n in range(7, 10) for r in range(4)]),
               sure=0.55, rank=None, saying=["at step 7, printed by ranks 0-3"]),
    recognises(wreckage("Epoch 3 Loss: nan"), sure=0.35, rank=None, saying=["loss was nan"]),
    recognises(wreckage("step 9 loss tensor(nan, device='cuda:0')"), sure=0.35, rank=None,
               saying=["loss was nan at step 9"]),
    recognises(wreckage(*[" Train loss/train/total: nan"] * 3), sure=0.55, rank=None,
               saying=["loss was nan"]),
    recognises(wreckage("Epoch 3:  40%|####      | 40/100 [00:10<00:15, 4.0it/s, v_num=1, "
                        "train_loss_step=nan.0]"),
               sure=0.35, rank=None, saying=["loss was nan"]),
    recognises(wreckage("FloatingPointError: Loss became infinite or NaN at iteration=12!"),
               sure=0.9, rank=None, saying=["at iteration 12"]),
    recognises(wreckage("Loss is nan, stopping training"), sure=0.9, rank=None,
               saying=["not finite"]),
    recognises(wreckage("[rank2]: RuntimeError: Train loss contains a NaN."), sure=0.9, rank=None,
               saying=["not finite"]),
    recognises(wreckage("[rank3]: ../torch/csrc/distributed/c10d/NanCheck.cu:34: checkForNaN: "
                        "block: [0,0,0], thread: [8,0,0] Assertion `!isnan(data[i])` failed."),
               sure=0.9, rank=3, saying=["on rank 3"]),
    passes_over(wreckage("Monitored metric val_loss = nan is not finite. Previous best value was")),
    passes_over(wreckage("step 3 loss 0.1")),
    passes_over(wreckage("best loss: inf", "best_val_loss=inf", "val_loss: nan", "eval loss nan")),
    passes_over(wreckage("loss: inf")),  # a scaler looks for its scale
    passes_over(wreckage("loss nano-model", "loss information")),
)  # fmt: skip
