"""Whether the order of the timeouts is sound."""

from __future__ import annotations

import pytest

from holdfast.env import timeout_order, timeouts_in_force
from holdfast.env.job import Job
from tests.env.made_jobs import a_job
from tests.faults.machines import a_machine

INIT = "import torch.distributed as dist\nfrom datetime import timedelta\n"
TWO_HOURS = INIT + "dist.init_process_group('nccl', timeout=timedelta(hours=2))\n"
RDMA = a_machine(rdma_devices=("mlx5_0",))


def said(job: Job) -> list[tuple[str, str]]:
    found = timeout_order.findings(job, timeouts_in_force.timeouts(job))
    assert all(one.reason and one.evidence and one.host for one in found)
    return [(one.status.value, one.summary) for one in found]


@pytest.mark.parametrize(
    ("job", "status", "words"),
    [
        (a_job("srun --time=60 torchrun t.py", TWO_HOURS), "warning", "before a hang is noticed"),
        (a_job("srun --time=5 torchrun t.py"), "note", "before a hang is noticed"),
        (a_job(TWO_HOURS and "torchrun t.py", TWO_HOURS + "dist.new_group([0])"), "note",
         "new_group at train.py:4 does not take over the 2 h"),
        (a_job("torchrun --rdzv-backend=c10d --rdzv-conf timeout=9 t.py"), "warning",
         "--rdzv-conf timeout=9 has no effect: the c10d rendezvous reads join_timeout"),
        (a_job("torchrun --nnodes 2 --rdzv-conf join_timeout=9 t.py"), "warning",
         "static rendezvous reads"),
        (a_job("torchrun --rdzv-conf timeout=9 t.py"), "warning", "c10d rendezvous reads"),
        (a_job("holdfast run --patience 3600 t.py"), "note", "has no effect"),
        (a_job(machine=RDMA, NCCL_IB_TIMEOUT="26"), "note", "outlasts the group"),
        (a_job(machine=RDMA, NCCL_IB_TIMEOUT="0"), "note", "never against 10 min"),
        (a_job("horovodrun -np 2 --stall-check-shutdown-time-seconds 30 python t.py"), "warning",
         "will not end stalled jobs"),
        (a_job(TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC="2"), "warning", "end healthy ranks"),
        (a_job(DEEPSPEED_TIMEOUT="1800"), "warning", "the unit is minutes"),
    ],
)  # fmt: skip
def test_disorder(job: Job, status: str, words: str) -> None:
    assert [s for s, summary in said(job) if words in summary] == [status], said(job)


@pytest.mark.parametrize(
    "job",
    [
        a_job(),
        a_job("torchrun --nnodes 2 --rdzv-backend c10d --rdzv-conf join_timeout=60 t.py"),
        a_job("srun --time=1-0 torchrun t.py", TWO_HOURS),
        a_job(text=TWO_HOURS + "dist.new_group([0], timeout=timedelta(hours=2))"),
        a_job(text=INIT + "dist.init_process_group('nccl')\ndist.new_group([0])"),
        a_job("holdfast run --patience 60 t.py"),
        a_job("horovodrun -np 2 --stall-check-shutdown-time-seconds 300 python t.py"),
        a_job(machine=RDMA, NCCL_IB_TIMEOUT="22"),
        a_job("torchrun --rdzv-backend etcd --rdzv-conf timeout=9 t.py"),
    ],
)
def test_sound(job: Job) -> None:
    assert said(job) == []
