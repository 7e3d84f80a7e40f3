"""Three ranks with DDP and holdfast.Sampler; rank 0 compares with the whole batch's gradient.

The ranks are forked before torch computes anything, so that torch is imported once.
"""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from holdfast.checkpoint.epoch import EpochOrder
from holdfast.checkpoint.sampler import Sampler

WORLD, LENGTH, BATCH, MICRO = 3, 24, 10, 2


def gradient(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def rank_main(rank: int, file: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=WORLD)
    torch.manual_seed(1)
    inputs, targets = torch.randn(LENGTH, 5).double(), torch.randn(LENGTH, 1).double()
    bare = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    model = DistributedDataParallel(bare)
    dataset = TensorDataset(inputs, targets)
    sampler = Sampler(dataset, global_batch_size=BATCH, micro_batch_size=MICRO, seed=3)
    loader = DataLoader(dataset, batch_sampler=sampler)
    order = EpochOrder(LENGTH, seed=3, epoch=0, shuffle=True)
    for some_inputs, some_targets in sampler.follow(loader):
        with sampler.sync(model):
            loss = nn.functional.mse_loss(model(some_inputs), some_targets)
            torch.autograd.backward(loss * sampler.loss_weight)
        if not sampler.is_last_micro_batch:
            continue
        found = gradient(bare)
        bare.zero_grad()
        first = (sampler.position - 1) * BATCH
        samples = [order[place] for place in range(first, min(first + BATCH, LENGTH))]
        loss = nn.functional.mse_loss(bare(inputs[samples]), targets[samples])
        torch.autograd.backward(loss)
        same = torch.allclose(found, gradient(bare), rtol=1e-10, atol=1e-14)
        bare.zero_grad()
        if rank == 0:
            print(f"batch {sampler.position - 1}: {'equal' if same else 'DIFFERENT'}", flush=True)
    dist.destroy_process_group()


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for rank in range(WORLD):
            child = os.fork()
            if child == 0:
                try:
                    rank_main(rank, os.path.join(folder, "store"))
                finally:
                    sys.stderr.flush()
                    os._exit(1 if sys.exc_info()[0] else 0)
            children.append(child)
        return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)


if __name__ == "__main__":
    sys.exit(main())
