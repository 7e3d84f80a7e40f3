"""A small FSDP2 training that survives: `holdfast run --nproc-per-node 4 examples/fsdp2.py`.

The lines with an arrow are holdfast's. Every rank saves its own shards; they load onto any number
of ranks. On GPUs where there is one for each rank, else on the CPU.
"""

import hashlib
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset

import holdfast

STEPS = int(os.environ.get("STEPS", "60"))
PACE = float(os.environ.get("PACE", "0.03"))  # seconds of pretended work in each step


def main() -> None:
    gpus = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
    if gpus:
        torch.set_default_device(f"cuda:{os.environ['LOCAL_RANK']}")
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("cpu:gloo,cuda:nccl" if gpus else "gloo")
    train(os.environ.get("CHECKPOINTS", "ckpts"))
    dist.destroy_process_group()


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down, self.dropout = nn.Linear(32, 64), nn.Linear(64, 32), nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        change: torch.Tensor = self.down(torch.relu(self.up(self.dropout(x))))
        return x + change


def train(folder: str) -> None:
    rank = dist.get_rank()
    torch.manual_seed(0)  # the same weights on every rank, before they are divided
    model = nn.Sequential(Block(), Block(), nn.Linear(32, 1))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    torch.manual_seed(rank)  # and another dropout on each
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    inputs = torch.randn(1920, 32, generator=torch.Generator().manual_seed(0), device="cpu")
    dataset = TensorDataset(inputs, inputs[:, :4].sum(dim=1, keepdim=True).tanh())
    # <- the same global batches on any number of ranks
    sampler = holdfast.Sampler(dataset, global_batch_size=64, micro_batch_size=16)
    loader = DataLoader(dataset, batch_sampler=sampler)
    state = holdfast.State(model=model, optimizer=optimizer, data=sampler)  # <- and random numbers
    ckpt = holdfast.Checkpoint(folder, state, every_steps=10)  # <- or every="5m", or "auto"
    ckpt.resume()  # <- the newest that verifies; at step 0 if there is none
    while state.step < STEPS:
        for batch in sampler.follow(loader):
            time.sleep(PACE)
            inputs, targets = (part.to(model[2].weight.device) for part in batch)
            with sampler.sync(model):  # <- gradients are exchanged once a global batch
                loss = nn.functional.mse_loss(model(inputs), targets) * sampler.loss_weight
                loss.backward()
            if sampler.is_last_micro_batch:  # <- the global batch is complete
                optimizer.step()
                optimizer.zero_grad()
                ckpt.step()  # <- counts the step, and saves when that is due
                if rank == 0 and state.step % 10 == 0:  # nine digits tell every float apart
                    print(f"step {state.step}: loss {loss.item():.9g}", flush=True)
    ckpt.close()
    digest = digest_of(model)  # gathers the shards: all ranks
    if rank == 0:
        print(f"done at step {state.step}: weights {digest}", flush=True)


def digest_of(model: nn.Module) -> str:
    sha = hashlib.sha256()
    for parameter in model.parameters():
        sha.update(parameter.full_tensor().detach().cpu().numpy().tobytes())
    return sha.hexdigest()[:16]


if __name__ == "__main__":
    main()
