"""A loop of your own around accelerate, resumed by holdfast.

    holdfast run --nproc-per-node 2 examples/accelerate_loop.py

holdfast saves model, optimizer, scheduler, random numbers and the position in the prepared loader.
"""

import hashlib
import os

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from holdfast.integrations.accelerate import AcceleratorCheckpoint

EPOCHS = 3


def train(folder: str) -> None:
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    set_seed(1)
    plain = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(plain.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 48)
    inputs = torch.randn(128, 16, generator=torch.Generator().manual_seed(0))
    dataset = TensorDataset(inputs, inputs.sum(dim=1, keepdim=True).tanh())
    model, optimizer, scheduler, loader = accelerator.prepare(
        plain, optimizer, scheduler, DataLoader(dataset, batch_size=4, shuffle=True)
    )
    ckpt = AcceleratorCheckpoint(
        os.path.join(folder, "ckpts"), accelerator, model=model, optimizer=optimizer,
        scheduler=scheduler, loader=loader, every_steps=5,
    )  # fmt: skip
    ckpt.resume()
    for epoch in range(ckpt.epoch, EPOCHS):
        for batch, targets in ckpt.batches(epoch):  # after a resume, those that are left
            with accelerator.accumulate(model):
                accelerator.backward(nn.functional.mse_loss(model(batch), targets))
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            ckpt.step()  # counts an optimizer step where there was one
    ckpt.save()
    ckpt.close()
    if accelerator.is_main_process:
        print(f"done at step {ckpt.state.step}: weights {digest(plain)}", flush=True)


def digest(model: nn.Module) -> str:
    values = b"".join(tensor.numpy().tobytes() for tensor in model.state_dict().values())
    return hashlib.sha256(values).hexdigest()[:16]


if __name__ == "__main__":
    train(os.environ.get("FOLDER", "."))
