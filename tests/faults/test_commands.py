"""What may stand in `Diagnosis.next`; every explain table asks this of its diagnoses."""

from __future__ import annotations

import pytest

from tests.faults.commands import problem


@pytest.mark.parametrize(
    "command",
    [
        "df -h /dev/shm",
        "dmesg -T | grep -iE 'oom|killed process'",
        "export NCCL_DEBUG=INFO",
        "CUDA_LAUNCH_BLOCKING=1 python train.py",
        "getent ahosts $(hostname)",
        "ls -l '/ckpts/my model.pt' && head -c 100 '/ckpts/my model.pt'",
        "nvidia-smi -L; echo CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES",
        "python -c 'import torch; print(torch.version.cuda)'",
        "ps -eo pid,stat,cmd | awk '$2 ~ /^[Tt]/'",
        "ss -ltnp 'sport = :29500'",
    ],
)
def test_a_command_is_accepted(command: str) -> None:
    assert problem(command) == ""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("holdfast run …", "left out"),
        ("env | grep RANK, on every node", "comma"),
        ("pgrep -af python  # on every node", "comma or a '#'"),
        ("python -c 'print(len(loader))'", "undefined in python -c: loader"),
        ("ping -c 3 PEER", "placeholders: PEER"),
        ("ls -l /ckpts/it's.pt", "no shell"),
        ("Look at the log", "does not begin with a program"),
    ],
)
def test_anything_else_is_refused(text: str, why: str) -> None:
    assert why in problem(text)
