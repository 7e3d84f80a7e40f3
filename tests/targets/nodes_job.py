"""Data-parallel training on several nodes, which says of every step when and with what it was made.

    FOLDER STEPS [KEY=VALUE…]

Every rank appends `seconds step world attempt value` to FOLDER/progress/HOST.RANK after each step:
seconds of the monotonic clock, which lab hosts share, and the sum of all parameters, which depends
on the samples seen so far and hardly on the number of ranks. Checkpoints go to FOLDER/ckpts.

keep=plain    torch.save by rank 0 every 20 steps, as in many scripts (default: holdfast.Checkpoint)
pause=S       a step (0.05)
sleep=HOST:STEP:S   the first rank of that host evaluates so long, once
pad=MB        of state, for a save that takes a while
ckpts=DIR     in place of FOLDER/ckpts
"""

import os
import socket
import sys
import time
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import holdfast

FOLDER, STEPS = sys.argv[1], int(sys.argv[2])
ASKED = dict(word.split("=", 1) for word in sys.argv[3:])
ATTEMPT = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
HOST, WIDTH, BATCH = socket.gethostname(), 256, 16


class Progress:
    def __init__(self, model: torch.nn.Module) -> None:
        folder = os.path.join(FOLDER, "progress")
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, f"{HOST}.{dist.get_rank()}")
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._model = model

    def note(self, step: int) -> None:
        value = sum(p.detach().double().sum().item() for p in self._model.parameters())
        world = dist.get_world_size()
        line = f"{time.monotonic():.3f} {step} {world} {ATTEMPT} {value:.9f}\n"
        os.write(self._file, line.encode())
        time.sleep(float(ASKED.get("pause", "0.05")))
        self._evaluate(step)

    def _evaluate(self, step: int) -> None:
        host, at, seconds = ASKED.get("sleep", "-:-1:0").split(":")
        if (host, int(at)) == (HOST, step) and os.environ["LOCAL_RANK"] == "0":
            time.sleep(float(seconds))


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, 1))
    inputs = torch.randn(4096, WIDTH)
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loop = plain if ASKED.get("keep") == "plain" else kept
    for _ in loop(model, optimizer, inputs, Progress(net).note):
        pass
    dist.destroy_process_group()


def kept(
    model: DistributedDataParallel,
    optimizer: torch.optim.Optimizer,
    inputs: torch.Tensor,
    note: Callable[[int], None],
) -> Iterator[int]:
    dataset = TensorDataset(inputs)
    sampler = holdfast.Sampler(dataset, global_batch_size=BATCH, micro_batch_size=BATCH, seed=1)
    loader = DataLoader(dataset, batch_sampler=sampler)
    pad = torch.zeros(int(float(ASKED.get("pad", "0")) * 250_000))
    state = holdfast.State(model=model, optimizer=optimizer, data=sampler, pad=pad)
    folder = ASKED.get("ckpts", os.path.join(FOLDER, "ckpts"))
    with holdfast.Checkpoint(folder, state, every_steps=20) as ckpt:
        ckpt.resume()
        while state.step < STEPS:
            for (batch,) in sampler.follow(loader):
                with sampler.sync(model):
                    (model(batch).square().mean() * sampler.loss_weight).backward()
                if sampler.is_last_micro_batch:
                    optimizer.step()
                    optimizer.zero_grad()
                    note(state.step)
                    ckpt.step()
                    yield state.step
                    if state.step >= STEPS:
                        break


def plain(
    model: DistributedDataParallel,
    optimizer: torch.optim.Optimizer,
    inputs: torch.Tensor,
    note: Callable[[int], None],
) -> Iterator[int]:
    file = os.path.join(FOLDER, "plain.pt")
    step = 0
    if os.path.exists(file):
        saved = torch.load(file)
        step = saved["step"]
        model.load_state_dict(saved["model"])
    rank, world = dist.get_rank(), dist.get_world_size()
    while step < STEPS:
        first = step * BATCH % len(inputs)
        mine = model(inputs[first : first + BATCH][rank::world])
        (mine.square().sum() * world / BATCH).backward()  # DDP divides by the number of ranks
        optimizer.step()
        optimizer.zero_grad()
        note(step)
        step += 1
        if rank == 0 and step % 20 == 0:
            torch.save({"step": step, "model": model.state_dict()}, f"{file}.new")
            os.replace(f"{file}.new", file)
        yield step


if __name__ == "__main__":
    main()
