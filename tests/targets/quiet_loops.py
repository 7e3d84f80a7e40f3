"""Healthy loops that do not look like 'one optimizer, one step': quiet_loops.py WHICH SECONDS"""

import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

WHICH, SECONDS = sys.argv[1], float(sys.argv[2])


def a_model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 1))


def a_batch() -> torch.Tensor:
    time.sleep(0.02)
    return torch.randn(8, 64)


def together(end: float) -> bool:
    """All ranks stop at the same step, whatever their clocks say."""
    late = torch.tensor([float(time.monotonic() > end)])
    dist.broadcast(late, 0)
    return not late.item()


def slow_first_epoch(end: float) -> None:
    """Steps of two seconds while the caches fill, then of 20 ms."""
    model = DistributedDataParallel(a_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    cold = time.monotonic() + SECONDS / 2
    while together(end):
        if time.monotonic() < cold:
            work(SECONDS / 15)
        train(model, optimizer)


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(a_batch()).pow(2).mean().backward()
    optimizer.step()


def work(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        torch.randn(64, 64) @ torch.randn(64, 64)


def leave_early(end: float) -> None:
    """Training is over; rank 0 has the last evaluation and save to do, the others go home."""
    model = DistributedDataParallel(a_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(40):
        train(model, optimizer)
    if dist.get_rank() == 0:
        work(end - time.monotonic())


def step_in_backward(end: float) -> None:
    model = a_model()
    optimizers: dict[torch.Tensor, torch.optim.SGD] = {
        p: torch.optim.SGD([p], lr=0.01) for p in model.parameters()
    }

    def step_now(parameter: torch.Tensor) -> None:
        dist.all_reduce(parameter.grad)
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(step_now)  # type: ignore[no-untyped-call]
    while together(end):
        model(a_batch()).pow(2).mean().backward()


def skip_with_a_scaler(end: float) -> None:
    """The first half of the time every gradient is infinite after some good steps: no step."""
    model = DistributedDataParallel(a_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    began = time.monotonic()
    for count in range(1_000_000):
        if not together(end):
            return
        optimizer.zero_grad()
        bad = count > 40 and time.monotonic() < began + SECONDS * 0.7
        loss = model(a_batch()).pow(2).mean() * (float("inf") if bad else 1.0)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def no_optimizer(end: float) -> None:
    """Its own update rule, so no step is ever seen; longer than holdfast waits for one."""
    model = DistributedDataParallel(a_model())
    while together(end):
        model(a_batch()).pow(2).mean().backward()
        with torch.no_grad():
            for p in model.parameters():
                assert p.grad is not None
                p.sub_(p.grad, alpha=0.01)
                p.grad = None


def evaluate_together(end: float) -> None:
    """Training, then all ranks evaluate for long and sum what they find after every batch, in
    two groups, now and then without waiting for it."""
    model = DistributedDataParallel(a_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    second = dist.new_group()
    for _ in range(40):
        train(model, optimizer)
    while together(end):
        with torch.no_grad():
            loss = model.module(a_batch()).pow(2).mean()
        pending = dist.all_reduce(loss, async_op=True)
        work(0.02 * (1 + dist.get_rank()))
        dist.all_reduce(torch.ones(3), group=second)
        pending.wait()
    for _ in range(10):
        train(model, optimizer)


def train_in_subgroups(end: float) -> None:
    """Two pipelines of two ranks with models of different sizes; they meet now and then, and
    rank 3 lets all of them wait."""
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    mine = dist.get_rank() // 2
    size = 8 * (1 + mine)
    model = DistributedDataParallel(torch.nn.Linear(64, size), process_group=pairs[mine])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(60):
        train(model, optimizer)
        if step == 40 and dist.get_rank() == 3:
            work(end - time.monotonic())
        if step % 10 == 0:
            dist.all_reduce(torch.ones(1))


def compute(end: float) -> None:
    """Each step takes 30 ms of processor time, however long it has to wait for that."""
    model = DistributedDataParallel(a_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    while together(end + SECONDS / 2):
        enough = time.thread_time() + 0.03
        while time.thread_time() < enough:
            torch.randn(64, 64) @ torch.randn(64, 64)
        train(model, optimizer)


LOOPS = {
    "compute": compute,
    "evaluate-together": evaluate_together,
    "leave-early": leave_early,
    "no-optimizer": no_optimizer,
    "scaler-skips": skip_with_a_scaler,
    "slow-first-epoch": slow_first_epoch,
    "step-in-backward": step_in_backward,
    "subgroups": train_in_subgroups,
}

torch.set_num_threads(1)
dist.init_process_group("gloo")
LOOPS[WHICH](time.monotonic() + SECONDS)
dist.destroy_process_group()
