"""What becomes of each setting."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.analysis import machine as f
from holdfast.analysis.variables.status import Effect, SettingStatus
from holdfast.env import setting_status
from holdfast.env.job import Job
from holdfast.findings import Status
from tests.env.made_jobs import CPU_BUILD, a_job
from tests.faults.machines import a_machine, settings


def judged(job: Job, name: str) -> SettingStatus:
    return next(one for one in setting_status.judge(job) if one.name == name)


@pytest.mark.parametrize(
    ("variables", "verdict", "words"),
    [
        ({"NCCL_DEBUG": "INFO"}, Effect.IN_FORCE, ""),
        ({"NCCL_TIMEOUT": "1800"}, Effect.NO_EFFECT, "not read by any program"),
        ({"NCCL_P2P_DISABLE": "1", "NCCL_P2P_LEVEL": "NVL"}, Effect.CONFLICT, "has no effect"),
        ({"NCCL_ASYNC_ERROR_HANDLING": "1"}, Effect.DEPRECATED, "under torchrun"),
        ({"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}, Effect.REDUNDANT, "on by default"),
        ({"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}, Effect.HARMFUL, "hangs past its timeout"),
        ({"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "480"}, Effect.REDUNDANT, "480 is the default"),
        ({"PET_MAX_RESTARTS": "0"}, Effect.REDUNDANT, "torch 2.13.0 to 2.15.0"),
        ({"NCCL_SOCKET_IFNAME": "ib9"}, Effect.HARMFUL, "matches no interface"),
        ({"NCCL_SOCKET_IFNAME": "eth0"}, Effect.IN_FORCE, "NCCL will use eth0 (10.0.0.5)"),
        ({"GLOO_SOCKET_IFNAME": "eth0"}, Effect.IN_FORCE, "Gloo will use eth0 (10.0.0.5)"),
        ({"NCCL_SOME_PLUGIN_OF_OURS": "1"}, Effect.UNKNOWN, "not in holdfast's table"),
        ({"DS_SOMETHING": "1"}, Effect.UNKNOWN, "not in holdfast's table"),
        ({"ACCELERATE_USE_CPU": "1"}, Effect.NO_READER, "Accelerate is not installed"),
        ({"HOROVOD_CYCLE_TIME": "5"}, Effect.NO_READER, "Horovod is not installed"),
        ({"SLURM_JOB_ID": "7"}, Effect.IN_FORCE, ""),
        ({"TORCH_NCCL_AVOID_RECORD_STREAMS": "1"}, Effect.NO_EFFECT, "no effect any more"),
        ({"OMP_NUM_THREADS": "8"}, Effect.IN_FORCE, ""),
        ({"NCCL_IB_RAIL_X": "1"}, Effect.UNKNOWN, ""),
    ],
)
def test_verdict(variables: dict[str, Any], verdict: Effect, words: str) -> None:
    first = next(iter(variables))
    found = judged(a_job(**variables), first)
    assert found.verdict is verdict, found
    assert words in found.why


@pytest.mark.parametrize(
    ("software", "variables", "verdict"),
    [
        (CPU_BUILD, {"NCCL_DEBUG": "INFO"}, Effect.NO_READER),
        (CPU_BUILD, {"TORCH_NCCL_DUMP_ON_TIMEOUT": "0"}, Effect.NO_READER),
        (CPU_BUILD, {"GLOO_SOCKET_IFNAME": "eth0"}, Effect.IN_FORCE),
        ({"torch": "", "nccl": ()}, {"TORCH_FR_BUFFER_SIZE": "9"}, Effect.NO_READER),
        ({"torch": "", "nccl": ()}, {"NCCL_DEBUG": "INFO"}, Effect.IN_FORCE),
        # Defaults change: 480 is none of torch 2.4's that we know.
        ({"torch": "2.4.0"}, {"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "480"}, Effect.IN_FORCE),
        ({"torch": "2.1.0"}, {"TORCH_NCCL_BLOCKING_WAIT": "1"}, Effect.DEPRECATED),
        # Since torch 2.15 `nccl` is another backend, unless it is told otherwise.
        ({"torch": "2.14.1"}, {"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "900"}, Effect.IN_FORCE),
        ({"torch": "2.15.0"}, {"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "900"}, Effect.NO_EFFECT),
        ({"torch": "2.15.0"}, {"TORCH_NCCL_ENABLE_TIMING": "1"}, Effect.IN_FORCE),
        (
            {"torch": "2.15.0"},
            {"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "900", "TORCH_DIST_USE_NCCL2": "0"},
            Effect.IN_FORCE,
        ),
    ],
)
def test_by_what_is_installed(
    software: dict[str, Any], variables: dict[str, Any], verdict: Effect
) -> None:
    assert judged(a_job(software=software, **variables), next(iter(variables))).verdict is verdict


@pytest.mark.parametrize(
    ("command", "name", "words"),
    [
        ("torchrun --nproc-per-node 2 t.py", "RANK", "torchrun, which sets it"),
        ("torchrun --nproc-per-node 2 t.py", "MASTER_PORT", "torchrun, which sets it"),
        ("deepspeed t.py", "MASTER_PORT", "deepspeed, which sets it"),
        ("accelerate launch --num_processes 4 t.py", "MASTER_ADDR", "accelerate launch"),
        ("torchrun --max-restarts 3 t.py", "PET_MAX_RESTARTS", "--max-restarts on the command"),
        ("srun torchrun t.py", "WORLD_SIZE", "torchrun"),
    ],
)
def test_overridden(command: str, name: str, words: str) -> None:
    setting: dict[str, Any] = {name: "7"}
    found = judged(a_job(command, **setting), name)
    assert found.verdict is Effect.OVERRIDDEN
    assert words in found.why


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("", "RANK"),
        ("python t.py", "RANK"),
        ("mpirun -np 4 python t.py", "MASTER_PORT"),
        ("accelerate launch t.py", "MASTER_PORT"),
        ("torchrun t.py", "PET_MAX_RESTARTS"),
        ("torchrun t.py", "CUDA_VISIBLE_DEVICES"),
    ],
)
def test_not_overridden(command: str, name: str) -> None:
    setting: dict[str, Any] = {name: "0,1,2,3" if name == "CUDA_VISIBLE_DEVICES" else "7"}
    assert judged(a_job(command, **setting), name).verdict is Effect.IN_FORCE


def test_what_torchrun_adds() -> None:
    def added(command: str, **variables: Any) -> set[str]:
        return {one.name for one in setting_status.added(a_job(command, **variables))}

    both = {"OMP_NUM_THREADS", "TORCH_NCCL_ASYNC_ERROR_HANDLING"}
    assert added("torchrun --nproc-per-node 4 t.py") == both
    assert added("torchrun t.py", OMP_NUM_THREADS="8") == both - {"OMP_NUM_THREADS"}
    assert added("torchrun t.py", software=CPU_BUILD) == {"OMP_NUM_THREADS"}
    assert added("deepspeed t.py") == set()
    assert added("") == set()


def test_messages_of_torch_are_no_proof_that_nccl_reads_it() -> None:
    search = f.VariableSearch(
        searched=("libtorch_cpu.so (torch 2.13.0)", "libnccl.so.2 (NCCL 2.29.7)"),
        prefixes=(),
        found={"NCCL_DEBUG": ("libtorch_cpu.so (torch 2.13.0)", "libnccl.so.2 (NCCL 2.29.7)")},
    )
    machine = a_machine(variable_search=search, settings=settings(NCCL_DEBUG="INFO"))
    (found,) = setting_status.judge(a_job(machine=machine))
    assert found.read_by == ("libnccl.so.2 (NCCL 2.29.7)",)


def test_only_nccl_reads_the_files_of_nccl() -> None:
    lines = {"TORCH_NCCL_DESYNC_DEBUG": "1", "NCCL_DEBUG": "INFO"}
    machine = a_machine(settings=settings("/etc/nccl.conf:1", **lines))
    found = {one.name: one.verdict for one in setting_status.judge(a_job(machine=machine))}
    assert found == {
        "TORCH_NCCL_DESYNC_DEBUG": Effect.NO_EFFECT,
        "NCCL_DEBUG": Effect.IN_FORCE,
    }


def test_what_a_file_says_is_lost_where_the_environment_speaks() -> None:
    job = a_job(NCCL_DEBUG="INFO")
    (found,) = setting_status.lost(job, settings("/etc/nccl.conf:2", NCCL_DEBUG="WARN"))
    assert found.verdict is Effect.OVERRIDDEN
    assert found.why == "overridden by the environment"
    assert found.status is Status.OK


def test_every_setting_is_judged_once() -> None:
    names: dict[str, Any] = {
        "NCCL_DEBUG": "INFO",
        "RANK": "0",
        "UCX_TLS": "rc",
        "FI_PROVIDER": "efa",
    }
    assert [one.name for one in setting_status.judge(a_job(**names))] == list(names)
