"""Every timeout has the value the job would have, and says where that comes from."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.analysis.variables.status import STAGES
from holdfast.env import timeouts_in_force
from tests.env.made_jobs import CPU_BUILD, a_job, keys, timeout
from tests.faults.machines import a_machine

INIT = "import torch.distributed as dist\nfrom datetime import timedelta\n"


@pytest.mark.parametrize(
    ("job", "key", "seconds", "origin"),
    [
        (a_job(), "group-nccl", 600, "default of torch 2.13.0"),
        (a_job(), "group-other", 1800, "default of torch 2.13.0"),
        (a_job(software={"torch": "2.1.2"}), "group-nccl", 1800, "default of torch 2.1.2"),
        (a_job(software={"torch": "2.4.0"}), "group-nccl", 600, "default of torch 2.4.0"),
        # Without the very name 'nccl' NCCL gets thirty minutes too (measured, torch 2.13).
        (a_job(text=INIT + "dist.init_process_group()"), "group-nccl", 1800, "train.py:3"),
        (a_job(text=INIT + "dist.init_process_group('nccl')"), "group-nccl", 600, "default"),
        (
            a_job(text=INIT + "dist.init_process_group(timeout=timedelta(minutes=5))"),
            "group-nccl",
            300,
            "init_process_group at train.py:3",
        ),
        (a_job(text=INIT + "dist.init_process_group(timeout=T)"), "init", None, "the group's"),
        (a_job(), "store", 300, "default"),
        (a_job(), "heartbeat", 480, "default"),
        (a_job(software={"torch": "2.5.1"}), "heartbeat", 480, "torch 2.5.1 may differ"),
        (
            a_job(TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC="1200"),
            "heartbeat",
            1200,
            "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=1200 (environment)",
        ),
        (a_job(TORCH_NCCL_ENABLE_MONITORING="0"), "heartbeat", None, "ENABLE_MONITORING=0"),
        (a_job(TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC="30000"), "dump", 30, "30000"),
        (a_job(TORCH_NCCL_USE_COMM_NONBLOCKING="1"), "nonblocking", 1800, "default"),
        (a_job("torchrun train.py"), "join", 600, "default of torch"),
        (a_job("torchrun t.py", software={"torch": "2.9.1"}), "join", 900, "default of torchrun"),
        (a_job("torchrun --master-port 1 train.py"), "join", 900, "default of torchrun"),
        (a_job("torchrun --nnodes 2 train.py"), "join", 900, "default of torchrun"),
        (a_job("torchrun --nnodes $N train.py"), "join", 900, "default of torchrun"),
        (a_job("torchrun train.py", PET_MASTER_PORT="1"), "join", 900, "default of torchrun"),
        (a_job("torchrun --nnodes 2 --rdzv-conf timeout=60 t.py"), "join", 60, "conf timeout=60"),
        (a_job("torchrun --standalone train.py"), "join", 600, "default of torch"),
        (
            a_job("torchrun --rdzv_backend=c10d --rdzv_conf=join_timeout=1200 train.py"),
            "join",
            1200,
            "--rdzv-conf join_timeout=1200",
        ),
        (a_job(PET_RDZV_BACKEND="c10d", PET_RDZV_CONF="join_timeout=7"), "join", 7, "PET_RDZV_CO"),
        (a_job("torchrun --nnodes 2 --rdzv-backend c10d t.py"), "keep-alive", 15, "3 times 5 s"),
        (a_job("torchrun --nnodes 2 --rdzv-backend c10d t.py"), "last-call", 30, "default"),
        (a_job("torchrun --nnodes 2 t.py"), "exit-barrier", 300, "default"),
        (a_job("torchrun --monitor-interval 5 t.py"), "monitor-interval", 5, "--monitor-interval"),
        (a_job(PET_MONITOR_INTERVAL="0.5"), "monitor-interval", 0.5, "PET_MONITOR_INTERVAL"),
        (a_job(TORCH_ELASTIC_SHUTDOWN_TIMEOUT="90"), "grace", 90, "TORCH_ELASTIC_SHUTDOWN"),
        (a_job("deepspeed t.py", DEEPSPEED_TIMEOUT="60"), "group-deepspeed", 3600, "TIMEOUT=60"),
        (a_job("deepspeed t.py"), "group-deepspeed", 600, "default of DeepSpeed 0.19"),
        (
            a_job("deepspeed t.py", software={"packages": {"deepspeed": "0.16.2"}}),
            "group-deepspeed",
            1800,
            "default of DeepSpeed 0.16.2",
        ),
        (
            a_job("torchrun t.py --ddp_timeout 7200", "import transformers, torch"),
            "group-trainer",
            7200,
            "--ddp_timeout 7200",
        ),
        (a_job(text="import lightning, torch"), "group-lightning", 1800, "default of Lightning"),
        (a_job("horovodrun -np 4 python t.py"), "horovod-elastic", 600, "default of Horovod"),
        (
            a_job("horovodrun -np 4 --elastic-timeout 99 python t.py"),
            "horovod-elastic",
            99,
            "--elastic-timeout 99",
        ),
        (a_job("horovodrun -np 4 python t.py"), "horovod-stall-shutdown", None, "default"),
        (a_job("srun --time=2:00:00 torchrun t.py"), "scheduler-asked", 7200, "--time 2:00:00"),
        (
            a_job(SLURM_JOB_START_TIME="1000", SLURM_JOB_END_TIME="4600"),
            "scheduler",
            3600,
            "SLURM_JOB_END_TIME=4600",
        ),
        (a_job(), "nccl-socket", 59.5, "34 tries"),
        (a_job(NCCL_SOCKET_RETRY_CNT="10"), "nccl-socket", 5.5, "NCCL_SOCKET_RETRY_CNT=10"),
    ],
)
def test_value_and_origin(job: object, key: str, seconds: float | None, origin: str) -> None:
    found = timeout(job, key)  # type: ignore[arg-type]
    assert found.seconds == pytest.approx(seconds) if seconds is not None else not found.seconds
    assert origin in found.origin


@pytest.mark.parametrize(
    ("version", "variables", "seconds"),
    [
        ("2.29.7", {}, 30.06),
        ("2.21.5", {}, 7.52),
        ("2.12.12", {}, 0.47),
        ("2.29.7", {"NCCL_IB_TIMEOUT": "22"}, 120.26),
        ("2.29.7", {"NCCL_IB_TIMEOUT": "22", "NCCL_IB_RETRY_CNT": "3"}, 51.54),
        ("2.29.7", {"NCCL_IB_TIMEOUT": "0"}, None),
        ("2.29.7", {"NCCL_IB_TIMEOUT": "40"}, None),
    ],
)
def test_rdma_in_seconds(version: str, variables: dict[str, Any], seconds: float | None) -> None:
    machine = a_machine(rdma_devices=("mlx5_0",))
    job = a_job(machine=machine, **variables)
    library = job.facts.software.nccl[0]  # type: ignore[union-attr]
    software = {"nccl": (type(library)(path="x", version=version, origin="system"),)}
    found = timeout(a_job(machine=machine, software=software, **variables), "nccl-rdma")
    assert found.seconds == (pytest.approx(seconds, abs=0.01) if seconds else None)


def test_nccl_groups_since_torch_2_15_have_no_heartbeat() -> None:
    newest = {"torch": "2.15.0"}
    assert "heartbeat" not in keys(a_job(software=newest))
    assert "heartbeat" in keys(a_job(software=newest, TORCH_DIST_USE_NCCL2="0"))
    assert "heartbeat" in keys(a_job(software={"torch": "2.14.1"}))
    job = a_job(software=newest, TORCH_FR_WAIT_TIMEOUT_DUMP_MILSEC="9000")
    assert timeout(job, "dump").seconds == 9


def test_a_cpu_build_has_no_timeouts_of_nccl() -> None:
    job = a_job(software=CPU_BUILD)
    assert not keys(job) & {"group-nccl", "heartbeat", "dump", "nccl-socket", "nccl-rdma"}
    assert any("CPU build" in said for said in timeouts_in_force.silences(job))


def test_a_gloo_script_has_no_group_of_nccl() -> None:
    assert "group-nccl" not in keys(a_job(text=INIT + "dist.init_process_group('gloo')"))


def test_a_launcher_brings_its_own_timeouts_and_no_others() -> None:
    assert "join" not in keys(a_job("horovodrun -np 2 python t.py"))
    assert "join" not in keys(a_job("deepspeed t.py"))
    assert "patience" in keys(a_job("holdfast run --patience 60 t.py"))
    assert "join" in keys(a_job("srun torchrun t.py"))


def test_an_older_nccl_does_not_retry() -> None:
    library = a_job().facts.software.nccl[0]  # type: ignore[union-attr]
    software = {"nccl": (type(library)(path="x", version="2.21.5", origin="system"),)}
    assert "nccl-socket" not in keys(a_job(software=software))


def test_what_is_not_known_is_said() -> None:
    assert not timeout(a_job(), "group-nccl").sure
    assert "may pass its own" in timeout(a_job(), "group-nccl").remark
    late = timeout(a_job(text=INIT + "dist.init_process_group(timeout=T)"), "group-nccl")
    assert (late.sure, late.seconds) == (False, None)
    assert "known only when it runs" in late.remark


def test_each_timeout_tells_what_it_does_and_where_that_was_read() -> None:
    jobs = [
        a_job("torchrun --nnodes 2 --rdzv-backend c10d t.py"),
        a_job("horovodrun -np 2 python t.py", machine=a_machine(rdma_devices=("mlx5_0",))),
        a_job("holdfast run t.py", SLURM_JOB_END_TIME="5"),
    ]
    for job in jobs:
        for one in timeouts_in_force.timeouts(job):
            assert one.does, one
            assert one.source, one
            assert one.origin, one
            assert one.stage in STAGES, one
