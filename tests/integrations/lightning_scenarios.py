"""Lightning's Trainer: see test_trainers.py."""

import os
import warnings
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.plugins import MixedPrecision
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import holdfast
from holdfast.integrations.lightning import CheckpointCallback, FollowedLoader
from tests.integrations.interrupted import digest, same_after_a_failure

warnings.simplefilter("ignore")
INPUTS = torch.randn(76, 16, generator=torch.Generator().manual_seed(0))
RANKS = int(os.environ.get("WORLD_SIZE", "1"))


class Model(pl.LightningModule):  # type: ignore[misc]
    def __init__(self, rate: float, plateau: bool) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 1)
        )
        self.rate, self.plateau = rate, plateau
        self.seen: list[tuple[int, float]] = []

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        inputs, targets = batch
        return nn.functional.mse_loss(self.net(inputs), targets)

    def validation_step(self, batch: list[torch.Tensor], _: int) -> None:
        torch.rand(1)
        inputs, targets = batch
        loss = nn.functional.mse_loss(self.net(inputs), targets)
        self.log("loss", loss, sync_dist=True)

    def on_validation_end(self) -> None:
        if not self.trainer.sanity_checking:
            self.seen.append((self.global_step, float(self.trainer.callback_metrics["loss"])))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.rate)
        if self.plateau:
            scheduler: Any = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
            return {
                "optimizer": optimizer,
                "lr_scheduler": {"scheduler": scheduler, "monitor": "loss", "interval": "epoch"},
            }
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 40)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }


def train(
    folder: str, *, stop: bool = False, rate: float = 0.01, plateau: bool = False, **given: Any
) -> dict[str, Any]:
    pl.seed_everything(1, verbose=False)
    model = Model(rate, plateau)
    dataset = TensorDataset(INPUTS, INPUTS.sum(dim=1, keepdim=True).tanh())
    # 9 global batches of 8 in an epoch, each in two micro-batches of a rank.
    sampler = holdfast.Sampler(
        dataset, global_batch_size=8, micro_batch_size=8 // RANKS // 2, drop_last=True
    )
    own = [EarlyStopping("loss", patience=1, check_on_train_epoch_end=False)] if stop else []
    keep = ModelCheckpoint(os.path.join(folder, "own"), monitor="loss", save_top_k=1)
    callback = CheckpointCallback(os.path.join(folder, "ckpts"), every="1h")
    made: dict[str, Any] = {
        "accelerator": "cpu", "devices": RANKS, "strategy": "ddp", "max_epochs": 3,
        "accumulate_grad_batches": 2, "logger": False, "enable_progress_bar": False,
        "enable_model_summary": False, "use_distributed_sampler": False,
        "callbacks": [*own, keep, callback],
    }  # fmt: skip
    trainer = pl.Trainer(**{**made, **given})
    loader = FollowedLoader(DataLoader(dataset, batch_sampler=sampler))
    trainer.fit(model, loader, DataLoader(dataset, batch_size=19))
    scaler = getattr(trainer.precision_plugin, "scaler", None)
    # A failed run is resumed with the validations that it had already seen elsewhere.
    return {
        "weights": digest(model),
        "step": trainer.global_step,
        "epoch": trainer.current_epoch,
        "evaluations": model.seen[-2:],
        "best": float(keep.best_model_score or 0.0),
        "logged": trainer.fit_loop.epoch_loop._batches_that_stepped,
        "scale": scaler.get_scale() if scaler else 0.0,
    }


def every_few_batches(folder: str) -> dict[str, Any]:
    return train(folder, val_check_interval=6, max_steps=22, max_epochs=-1)


def every_epoch(folder: str) -> dict[str, Any]:
    return train(folder, plateau=True, rate=0.1)


def stopped(folder: str) -> dict[str, Any]:
    return train(folder, stop=True, rate=0.5, val_check_interval=4, max_epochs=9)


def mixed(folder: str) -> dict[str, Any]:
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=4)
    return train(folder, plugins=[MixedPrecision("16-mixed", "cpu", scaler)], limit_val_batches=0)


if __name__ == "__main__":
    same_after_a_failure("validation-at-the-saved-step", every_few_batches, saved=6, failed=8)
    same_after_a_failure("middle", every_few_batches, saved=10, failed=11)
    same_after_a_failure("epoch-end", every_epoch, saved=9, failed=11)
    same_after_a_failure("before-the-last", every_epoch, saved=17, failed=19)
    same_after_a_failure("after-the-first", every_epoch, saved=10, failed=12)
    same_after_a_failure("early-stopping", stopped, saved=2, failed=3)
    same_after_a_failure("scaler", mixed, saved=7, failed=9)
    torch.distributed.destroy_process_group()
