"""Lightning, resumed by holdfast.

    holdfast run --nproc-per-node 2 examples/lightning_trainer.py

holdfast saves model, optimizer, scheduler, random numbers, the data position and the state of
Lightning's own loops. `Keeper` and `Followed` are all that is needed; copy them.
"""

import hashlib
import os
from collections.abc import Iterator
from typing import Any

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import holdfast

STEPS = 24


class Keeper(pl.Callback):
    """Restores everything before the loops begin, and saves from inside them."""

    def __init__(self, folder: str, sampler: holdfast.Sampler, *, every_steps: int) -> None:
        self.folder, self.sampler, self.every_steps = folder, sampler, every_steps

    def on_fit_start(self, trainer: pl.Trainer, *_: Any) -> None:
        state = holdfast.State(
            model=trainer.model,  # in its DDP wrapper, whose order of sums is kept, too
            optimizer=trainer.optimizers[0],
            scheduler=trainer.lr_scheduler_configs[0].scheduler,
            data=self.sampler,
            loops=trainer.fit_loop,
        )
        self.ckpt = holdfast.Checkpoint(self.folder, state, every_steps=self.every_steps)
        self.ckpt.resume()

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        if trainer.global_step > self.ckpt.state.step:  # not while gradients are accumulated
            self.ckpt.step()

    def on_fit_end(self, *_: Any) -> None:
        self.ckpt.close()


class Followed:
    """A loader that Lightning may ask for its data position: that of the sampler."""

    def __init__(self, loader: DataLoader[Any], sampler: holdfast.Sampler) -> None:
        self.loader, self.sampler = loader, sampler  # Lightning calls sampler.set_epoch
        self.state_dict, self.load_state_dict = sampler.state_dict, sampler.load_state_dict

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[Any]:
        return self.sampler.follow(self.loader)


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
    loader = DataLoader(dataset, batch_sampler=sampler)
    trainer = pl.Trainer(
        accelerator="cpu", devices=ranks, strategy="ddp", max_steps=STEPS, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        use_distributed_sampler=False,
        callbacks=[Keeper(os.path.join(folder, "ckpts"), sampler, every_steps=5)],
    )  # fmt: skip
    trainer.fit(model, Followed(loader, sampler))
    if trainer.is_global_zero:
        print(f"done at step {trainer.global_step}: weights {digest(model)}", flush=True)


def digest(model: nn.Module) -> str:
    values = b"".join(tensor.numpy().tobytes() for tensor in model.state_dict().values())
    return hashlib.sha256(values).hexdigest()[:16]


if __name__ == "__main__":
    train(os.environ.get("FOLDER", "."))
