"""Lightning, resumed by holdfast.

    holdfast run --nproc-per-node 2 examples/lightning_trainer.py

holdfast saves model, optimizer, scheduler, random numbers, the data position and the state of
Lightning's own loops.
"""

import hashlib
import os
from typing import Any

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import holdfast
from holdfast.integrations.lightning import CheckpointCallback, FollowedLoader

STEPS = 24


class Model(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 1))

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        inputs, targets = batch
        return nn.functional.mse_loss(self.net(inputs), targets)

    def configure_optimizers(self) -> dict[str, Any]:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }


def train(folder: str) -> None:
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    pl.seed_everything(1, verbose=False)
    model = Model()
    inputs = torch.randn(128, 16, generator=torch.Generator().manual_seed(0))
    dataset = TensorDataset(inputs, inputs.sum(dim=1, keepdim=True).tanh())
    # One micro-batch a rank and step: Lightning does not apply `sampler.loss_weight`.
    sampler = holdfast.Sampler(dataset, global_batch_size=8, micro_batch_size=8 // ranks)
    loader = FollowedLoader(DataLoader(dataset, batch_sampler=sampler))
    trainer = pl.Trainer(
        accelerator="cpu", devices=ranks, strategy="ddp", max_steps=STEPS, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        use_distributed_sampler=False,
        callbacks=[CheckpointCallback(os.path.join(folder, "ckpts"), every_steps=5)],
    )  # fmt: skip
    trainer.fit(model, loader)
    if trainer.is_global_zero:
        print(f"done at step {trainer.global_step}: weights {digest(model)}", flush=True)


def digest(model: nn.Module) -> str:
    values = b"".join(tensor.numpy().tobytes() for tensor in model.state_dict().values())
    return hashlib.sha256(values).hexdigest()[:16]


if __name__ == "__main__":
    train(os.environ.get("FOLDER", "."))
