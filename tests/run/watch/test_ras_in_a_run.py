"""A real job that stalls under `holdfast run`, beside a fake RAS that knows its processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli import holdfast_command
from tests.system import ras_server
from tests.system.ras_server import FakeCommunicator, FakeJob, FakeRank
from tests.torch_version import needs_live_recorders

JOB = """
import os, pathlib, sys, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
pathlib.Path(sys.argv[1], str(rank)).write_text(str(os.getpid()))
weight = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([weight], lr=0.1)
for step in range(40):
    weight.grad = torch.ones(4)
    dist.all_reduce(weight.grad)
    optimizer.step()
    time.sleep(0.02)
    if step == 30 and rank == 2:
        time.sleep(600)
"""


@pytest.mark.long
@needs_live_recorders
@pytest.mark.parametrize(("behind", "said"), [(2, "agrees"), (1, "points elsewhere")])
def test_the_verdict_has_a_second_witness(tmp_path: Path, behind: int, said: str) -> None:
    script, pids = tmp_path / "job.py", tmp_path / "pids"
    script.write_text(JOB)
    pids.mkdir()

    def now() -> FakeJob:
        told = {int(file.name): int(file.read_text() or 0) for file in pids.iterdir()}
        ranks = [
            FakeRank(rank, pid, counts={"AllReduce": 31 - (rank == behind)})
            for rank, pid in sorted(told.items())
        ]
        return FakeJob(communicators=(FakeCommunicator(ranks),))

    with ras_server.serving(now, stopped=1) as port:
        done = holdfast_command.run(
            *("run", "--no-check", "--runs", str(tmp_path / "runs"), "--nproc-per-node", "3"),
            *("--patience", "5", "--max-restarts", "0", str(script), str(pids)),
            environment={"NCCL_RAS_ADDR": f"127.0.0.1:{port}"},
        )
    assert done.returncode == 124, done.stderr
    notice, _, verdict = done.stderr.partition("verdict[HOLD606]")
    assert "RAS" not in notice  # it may come back, and NCCL may crash over the question
    words = f"NCCL's RAS {said}: rank {behind} has launched 30 AllReduce, the others 31"
    assert words in verdict, done.stderr
    assert list(tmp_path.glob("runs/*/attempt-0/evidence-*/ncclras.txt"))
