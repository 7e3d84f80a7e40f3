"""A small DDP training that survives: `holdfast run --nproc-per-node 4 examples/train.py`.

The lines with an arrow are holdfast's. BREAK=1 breaks it twice on purpose: rank 2 is killed in the
first attempt, rank 1 hangs in the second; the third ends with the weights of an undisturbed run.
"""

import hashlib
import os
import signal
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import holdfast

STEPS = int(os.environ.get("STEPS", "60"))
PACE = float(os.environ.get("PACE", "0.03"))  # seconds of pretended work in each step


def main() -> None:
    dist.init_process_group("gloo")
    train(os.environ.get("CHECKPOINTS", "ckpts"))
    dist.destroy_process_group()


def train(folder: str) -> None:
    rank = dist.get_rank()
    torch.manual_seed(rank)
    net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    inputs = torch.randn(1920, 32, generator=torch.Generator().manual_seed(0))  # 30 global batches
    dataset = TensorDataset(inputs, inputs[:, :4].sum(dim=1, keepdim=True).tanh())
    # <- the same global batches on any number of ranks
    sampler = holdfast.Sampler(dataset, global_batch_size=64, micro_batch_size=16)
    loader = DataLoader(dataset, batch_sampler=sampler)
    state = holdfast.State(model=model, optimizer=optimizer, data=sampler)  # <- and random numbers
    ckpt = holdfast.Checkpoint(folder, state, every_steps=10)  # <- or every="5m", or "auto"
    ckpt.resume()  # <- the newest that verifies; at step 0 if there is none
    while state.step < STEPS:
        for batch, targets in sampler.follow(loader):
            time.sleep(PACE)
            break_on_purpose(rank, state.step)
            with sampler.sync(model):  # <- gradients are exchanged once a global batch
                loss = nn.functional.mse_loss(model(batch), targets) * sampler.loss_weight
                loss.backward()
            if sampler.is_last_micro_batch:  # <- the global batch is complete
                optimizer.step()
                optimizer.zero_grad()
                ckpt.step()  # <- counts the step, and saves when that is due
                if rank == 0 and state.step % 10 == 0:  # nine digits tell every float apart
                    print(f"step {state.step}: loss {loss.item():.9g}", flush=True)
    ckpt.close()
    if rank == 0:
        weights = nn.utils.parameters_to_vector(net.parameters()).detach().numpy().tobytes()
        digest = hashlib.sha256(weights).hexdigest()[:16]
        print(f"done at step {state.step}: weights {digest}", flush=True)


def break_on_purpose(rank: int, step: int) -> None:
    if os.environ.get("BREAK"):
        now = (os.environ.get("TORCHELASTIC_RESTART_COUNT"), rank, step)
        if now == ("0", 2, 24):
            os.kill(os.getpid(), signal.SIGKILL)
        if now == ("1", 1, 44):
            time.sleep(3600)


if __name__ == "__main__":
    main()
