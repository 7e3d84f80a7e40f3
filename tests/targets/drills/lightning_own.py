"""Lightning with its own ModelCheckpoint, resumed as its documentation says."""

import os
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Model(pl.LightningModule):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 1))

    def training_step(self, batch: list[torch.Tensor], _: int) -> Any:
        inputs, targets = batch
        return (self.net(inputs) - targets).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.01)


pl.seed_everything(1, verbose=False)
everything = torch.randn(128, 16, generator=torch.Generator().manual_seed(0))
dataset = TensorDataset(everything, everything.sum(dim=1, keepdim=True).tanh())
trainer = pl.Trainer(
    accelerator="cpu", devices=int(os.environ["WORLD_SIZE"]), strategy="ddp", max_steps=24,
    logger=False, enable_progress_bar=False, enable_model_summary=False,
    callbacks=[ModelCheckpoint("ckpts", every_n_train_steps=5, save_last=True)],
)  # fmt: skip
trainer.fit(Model(), DataLoader(dataset, 4, shuffle=True), ckpt_path="last")
