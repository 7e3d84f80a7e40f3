"""What all of them train: a small model with dropout, on made-up data, 60 steps."""

import os
import time
from collections.abc import Iterator

import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

STEPS = int(os.environ.get("STEPS", "60"))
EVERY = 10
"""steps between two saves"""
PACE = float(os.environ.get("PACE", "0.03"))
BATCH = 16


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 1))


class Batches:
    """A shuffled epoch after the other. No epoch ends at a save, on 2 ranks or on 4."""

    def __init__(self) -> None:
        inputs = torch.randn(1760, 32, generator=torch.Generator().manual_seed(0))
        dataset = TensorDataset(inputs, inputs[:, :4].sum(dim=1, keepdim=True).tanh())
        self.sampler: DistributedSampler[list[torch.Tensor]] = DistributedSampler(dataset)
        # Its own generator: each `iter(loader)` draws a number, after a resume once more.
        self.loader = DataLoader(
            dataset, BATCH, sampler=self.sampler, drop_last=True, generator=torch.Generator()
        )

    def since(self, step: int) -> Iterator[list[torch.Tensor]]:
        """Those of the steps from that one on, without end."""
        while True:
            epoch, position = divmod(step, len(self.loader))
            self.sampler.set_epoch(epoch)
            for number, batch in enumerate(self.loader):
                if number >= position:
                    time.sleep(PACE)
                    yield batch
                    step += 1
