"""NCCL jobs that know nothing of holdfast and break on command, 50 ms a step:

    gpu_job.py LAYOUT STEPS [FAULT RANK]

Where there are fewer GPUs than ranks, they share them: NCCL then takes each rank for a host.
The fault comes once, in the first attempt, in the middle of step 20 of that rank; the moment goes
into the file named by FAULT_TIME_FILE, if there is one.
"""

import datetime as dt
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

LAYOUT, STEPS = sys.argv[1], int(sys.argv[2])
FAULT, CULPRIT = (sys.argv[3], int(sys.argv[4])) if len(sys.argv) > 4 else ("", -1)
AT = 20
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
WIDTH = 64


class Breakage:
    """Asked between two layers, again and again; breaks when it is time."""

    def __init__(self) -> None:
        self.step = 0
        self.group: dist.ProcessGroup | None = None
        self.second: dist.ProcessGroup | None = None
        first_attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
        self.due = first_attempt and RANK == CULPRIT

    def maybe(self) -> None:
        if self.due and self.step == AT:
            self.due = False
            if "FAULT_TIME_FILE" in os.environ:
                with open(os.environ["FAULT_TIME_FILE"], "w") as file:
                    file.write(str(time.time()))
            self.happen()

    def happen(self) -> None:
        x = torch.ones(7, device="cuda")
        ways: dict[str, Callable[[], object]] = {
            "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
            "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
            "sleep": lambda: time.sleep(10_000),
            "exit": lambda: os._exit(0),
            "exception": fail,
            "size": lambda: dist.all_reduce(x, group=self.group),
            "op": lambda: dist.broadcast(x, group=self.group, group_src=0),
            "group": lambda: dist.all_reduce(x, group=self.second),
            "kernel": lambda: torch.cuda._sleep(1 << 62),  # type: ignore[no-untyped-call]
            "assert": lambda: x[torch.tensor([99], device="cuda")].sum().item(),
            "oom": lambda: torch.empty(1 << 50, device="cuda", dtype=torch.uint8),
        }
        ways[FAULT]()


def fail() -> None:
    raise ValueError("the batch is empty")


BREAKAGE = Breakage()


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = x + self.down(torch.relu(self.up(x)))
        BREAKAGE.maybe()
        return y


class Model(nn.Module):
    def __init__(self, blocks: int = 3) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(blocks))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


class Job:
    """A model on all ranks, and one step of it."""

    def __init__(self) -> None:
        BREAKAGE.second = dist.new_group([0, max(CULPRIT, 1)])
        self.model: nn.Module = Model().cuda()
        getattr(self, LAYOUT)()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.001)

    def ddp(self) -> None:
        self.model = DistributedDataParallel(self.model)

    def fsdp2(self) -> None:
        for block in self.model.blocks:  # type: ignore[union-attr]
            fully_shard(block)
        fully_shard(self.model)

    def mesh(self) -> None:
        mesh = init_device_mesh("cuda", (2, WORLD // 2), mesh_dim_names=("dp", "tp"))
        plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
        for block in self.model.blocks:  # type: ignore[union-attr]
            parallelize_module(block, mesh["tp"], plan)
            fully_shard(block, mesh=mesh["dp"])
        fully_shard(self.model, mesh=mesh["dp"])
        BREAKAGE.group, BREAKAGE.second = mesh["tp"].get_group(), None

    def pipeline(self) -> None:
        self._stages(dist.group.WORLD)

    def dp_pp(self) -> None:
        mesh = init_device_mesh("cuda", (2, WORLD // 2), mesh_dim_names=("dp", "pp"))
        self._stages(mesh["pp"].get_group(), mesh["dp"].get_group())

    def _stages(self, pp: dist.ProcessGroup | None, dp: dist.ProcessGroup | None = None) -> None:
        self.dp, stages = dp, dist.get_world_size(pp)
        self.model = Model(1).cuda()
        device = torch.device("cuda", torch.cuda.current_device())
        stage = PipelineStage(self.model, dist.get_rank(pp), stages, device, group=pp)
        self.schedule = Schedule1F1B(stage, 2 * stages, loss_fn=nn.functional.mse_loss)
        self.first, self.last = stage.is_first, stage.is_last

    def step(self) -> torch.Tensor | None:
        x = torch.randn(32, WIDTH, device="cuda")
        self.optimizer.zero_grad()
        loss = self._pipelined(x) if LAYOUT in ("pipeline", "dp_pp") else self._whole(x)
        self.optimizer.step()
        return loss

    def _whole(self, x: torch.Tensor) -> Any:
        loss = self.model(x).pow(2).mean()
        loss.backward()
        return loss

    def _pipelined(self, x: torch.Tensor) -> torch.Tensor | None:
        losses: list[torch.Tensor] = []
        if self.first:
            self.schedule.step(x)
        elif self.last:
            self.schedule.step(target=x, losses=losses)
        else:
            self.schedule.step()
        if self.dp:
            for parameter in self.model.parameters():
                dist.all_reduce(parameter.grad, group=self.dp)
        return losses[0] if losses else None


def main() -> None:
    if torch.cuda.device_count() < WORLD:
        os.environ.setdefault("NCCL_HOSTID", f"host{RANK}")
    torch.cuda.set_device(RANK % torch.cuda.device_count())
    dist.init_process_group("nccl", timeout=dt.timedelta(seconds=600))
    torch.manual_seed(0)
    job = Job()
    for step in range(STEPS):
        BREAKAGE.step = step
        time.sleep(0.05)
        loss = job.step()
        if step % 10 == 0 and loss is not None:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    torch.cuda.synchronize()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
