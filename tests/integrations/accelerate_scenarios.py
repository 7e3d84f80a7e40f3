"""A loop around accelerate: see test_trainers.py."""

import os
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import holdfast
from holdfast.integrations.accelerate import AcceleratorCheckpoint
from tests.integrations.interrupted import digest, same_after_a_failure

INPUTS = torch.randn(76, 16, generator=torch.Generator().manual_seed(0))


def train(folder: str, **loading: Any) -> dict[str, Any]:
    accelerator = Accelerator(
        cpu=True,
        gradient_accumulation_steps=2,
        dataloader_config=DataLoaderConfiguration(**loading),
    )
    accelerator.step = 0
    set_seed(1)
    plain = nn.Sequential(
        nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 1)
    )
    made = torch.optim.AdamW(plain.parameters(), lr=0.01)
    dataset = TensorDataset(INPUTS, INPUTS.sum(dim=1, keepdim=True).tanh())
    # 19 batches of a rank in an epoch: 9 steps and a smaller one.
    model, optimizer, scheduler, loader = accelerator.prepare(
        plain,
        made,
        torch.optim.lr_scheduler.CosineAnnealingLR(made, 60),
        DataLoader(dataset, batch_size=2, shuffle=True),
    )
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "loader": loader}
    evaluated: dict[int, str] = {}
    with AcceleratorCheckpoint(
        os.path.join(folder, "ckpts"), accelerator, every="1h", extras={"best": 0.5}, **parts
    ) as ckpt:
        ckpt.resume()
        for epoch in range(ckpt.epoch, 3):
            for inputs, targets in ckpt.batches(epoch):
                with accelerator.accumulate(model):
                    accelerator.backward(nn.functional.mse_loss(model(inputs), targets))
                    optimizer.step()
                    scheduler.step()
                    optimizer.zero_grad()
                ckpt.step()
            torch.rand(1)  # an evaluation draws numbers
            evaluated[epoch] = digest(plain)
    return {
        "weights": digest(plain),
        "step": ckpt.state.step,
        "rate": scheduler.get_last_lr(),
        "evaluated": [evaluated.get(epoch) for epoch in (1, 2)],
        "numbers": torch.rand(2).tolist(),
    }


def seeded(folder: str) -> dict[str, Any]:
    return train(folder, use_seedable_sampler=True)


if __name__ == "__main__":
    same_after_a_failure("middle", train, saved=13, failed=15)
    same_after_a_failure("epoch-end", train, saved=20, failed=22)
    same_after_a_failure("first-of-an-epoch", train, saved=11, failed=12)
    same_after_a_failure("seedable-sampler", seeded, saved=13, failed=15)
    try:
        train("refused", dispatch_batches=True)
    except holdfast.ConfigError as refused:
        print(f"dispatched: {refused.sentence}", flush=True)
    torch.distributed.destroy_process_group()
