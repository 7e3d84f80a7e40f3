"""Two ranks train to step 30 and resume as their users do: argv names the recipe.

The attempt that starts at step 0 kills rank 1 at step 17. The one that resumes flips a bit of the
newest checkpoint at step 25, where it can be noticed, and kills rank 1 again. `truth.jsonl` has one
line for each start: where it began, as the script itself knows it.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

HOW = sys.argv[1]
SAVES = (10, 20)
KILLS = {0: 17, 1: 25}
"""by the starts so far"""
LAST = 30
truth = Path("truth.jsonl")


def net() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))


class Job:
    """What every recipe does alike."""

    def __init__(self, damaged: str) -> None:
        self.damaged = damaged
        self.starts = len(truth.read_text().splitlines()) if truth.exists() else 0

    def began(self, step: int) -> None:
        dist.barrier()
        if dist.get_rank() == 0:
            with truth.open("a") as file:
                file.write(json.dumps({"how": HOW, "step": step}) + "\n")

    def after(self, step: int) -> None:
        if KILLS.get(self.starts) != step:
            return
        dist.barrier()
        if dist.get_rank() == 1:
            if self.starts:
                flip(Path(self.damaged))
            os.kill(os.getpid(), signal.SIGKILL)
        dist.barrier()  # never met


def flip(file: Path) -> None:
    whole = bytearray(file.read_bytes())
    # The end of an archive is its table of contents; that of a pickle is its last object.
    whole[-len(whole) // 40 if file.suffix else len(whole) // 2] ^= 64
    file.write_bytes(whole)


def train(job: Job, model: Any, optimizer: Any, step: int, save: Callable[[int], None]) -> None:
    job.began(step)
    while step < LAST:
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        if step in SAVES:
            save(step)
        job.after(step)


def torch_save(*, weights_only: bool = True) -> None:
    """The tutorial's snapshot; nanoGPT's `ckpt.pt` is the same with a folder of its own."""
    path = Path("last.pt" if weights_only else "out/ckpt.pt")
    path.parent.mkdir(exist_ok=True)
    model = nn.parallel.DistributedDataParallel(net())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step = 0
    if path.exists():
        saved = torch.load(path, map_location="cpu", weights_only=weights_only)
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["iter_num"]

    def save(step: int) -> None:
        if dist.get_rank() == 0:
            state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save({**state, "iter_num": step}, path)

    train(Job(str(path)), model, optimizer, step, save)


def dcp_recipe(*, sharded: bool = False) -> None:
    """PyTorch's recipe for distributed checkpoints: an AppState, or the state dicts of FSDP2."""
    dcp: Any = importlib.import_module("torch.distributed.checkpoint")
    from torch.distributed.checkpoint.state_dict import (  # noqa: PLC0415
        get_state_dict,
        set_state_dict,
    )

    model: Any = net()
    if sharded:
        torch.distributed.fsdp.fully_shard(model)
    else:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def state_now(step: int) -> dict[str, Any]:
        weights, inner = get_state_dict(model, optimizer)
        return {"model": weights, "optim": inner, "step": torch.tensor(step)}

    step = 0
    if Path("ckpt/.metadata").exists():
        saved = state_now(0)
        dcp.load(saved, checkpoint_id="ckpt")
        set_state_dict(
            model, optimizer, model_state_dict=saved["model"], optim_state_dict=saved["optim"]
        )
        step = int(saved["step"])
    train(Job("ckpt/.metadata"), model, optimizer, step,
          lambda step: dcp.save(state_now(step), checkpoint_id="ckpt") and None)  # fmt: skip


def with_accelerate() -> None:
    from accelerate import Accelerator  # noqa: PLC0415

    accelerator = Accelerator(cpu=True)
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer = accelerator.prepare(model, optimizer)
    at = Path("out/at")
    step = 0
    if at.exists():
        accelerator.load_state("out/state")
        step = int(at.read_text())

    def save(step: int) -> None:
        accelerator.save_state("out/state", safe_serialization=False)
        if dist.get_rank() == 0:
            at.write_text(str(step))

    train(Job("out/state/optimizer.bin"), model, optimizer, step, save)


class Samples(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 4 * 2 * LAST

    def __getitem__(self, index: int) -> Any:
        return {"x": torch.ones(8) * index / 100}


def with_trainer() -> None:
    from transformers import Trainer, TrainerCallback, TrainingArguments  # noqa: PLC0415

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net()

        def forward(self, x: torch.Tensor) -> Any:
            return {"loss": self.net(x).square().mean()}

    class Callback(TrainerCallback):  # type: ignore[misc,unused-ignore]
        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            job.began(state.global_step)

        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            job.after(state.global_step)

    newest = sorted(Path("out").glob("checkpoint-*"), key=lambda one: int(one.name[11:]))
    job = Job("out/checkpoint-20/optimizer.pt")
    arguments = TrainingArguments(
        "out", per_device_train_batch_size=4, max_steps=LAST, save_steps=10, use_cpu=True,
        report_to=[], disable_tqdm=True,
    )  # fmt: skip
    trainer = Trainer(Model(), arguments, train_dataset=Samples(), callbacks=[Callback()])
    trainer.train(resume_from_checkpoint=str(newest[-1]) if newest else None)


def with_lightning() -> None:
    pl: Any = importlib.import_module("lightning")
    from lightning.pytorch.callbacks import ModelCheckpoint  # noqa: PLC0415

    class Module(pl.LightningModule):  # type: ignore[misc,unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.net = net()

        def training_step(self, batch: Any, _: int) -> Any:
            return self.net(batch["x"]).square().mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

        def on_train_start(self) -> None:
            job.began(self.global_step)

        def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
            job.after(self.global_step)

    job = Job("out/last.ckpt")
    saver = ModelCheckpoint("out", every_n_train_steps=10, save_last=True, save_top_k=1)
    trainer = pl.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_steps=LAST, callbacks=[saver],
        logger=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    newest = "out/last.ckpt" if Path("out/last.ckpt").exists() else None
    trainer.fit(Module(), torch.utils.data.DataLoader(Samples(), batch_size=4), ckpt_path=newest)


RECIPES: dict[str, Callable[[], None]] = {
    "torch.save": torch_save,
    "nanoGPT-like": lambda: torch_save(weights_only=False),
    "DCP": dcp_recipe,
    "FSDP2": lambda: dcp_recipe(sharded=True),
    "accelerate": with_accelerate,
    "Trainer": with_trainer,
    "Lightning": with_lightning,
}

OPEN_THE_GROUP = ("accelerate", "Trainer", "Lightning")
"""recipes whose library does so"""

if __name__ == "__main__":
    if HOW not in OPEN_THE_GROUP:
        dist.init_process_group("gloo")
    RECIPES[HOW]()
    if dist.is_initialized():
        dist.destroy_process_group()
