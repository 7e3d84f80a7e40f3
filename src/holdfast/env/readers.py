"""Which installed programs read a variable, and why none does. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.analysis import variables
from holdfast.analysis.variables import Variable
from holdfast.analysis.versions import release
from holdfast.env.job import Job

NEEDS = {
    "NCCL": ("nccl", "NCCL"),
    "Accelerate": ("accelerate", "Accelerate"),
    "DeepSpeed": ("deepspeed", "DeepSpeed"),
    "Horovod": ("horovod", "Horovod"),
    "PyTorch": ("torch", "torch"),
    "Gloo in PyTorch": ("torch", "torch"),
    "torchrun": ("torch", "torch"),
}
"""reader -> the program that must be installed for it"""
OF_NCCL = ("libnccl", "librccl")


def readers(name: str, proof: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Programs that hold the name and can mean it: torch speaks of NCCL's variables in messages,
    but only NCCL reads them."""
    row = variables.lookup(name)
    held = proof.get(name, ())
    if row is None or row.reader != "NCCL":
        return held
    return tuple(label for label in held if "(NCCL " in label or label.startswith(OF_NCCL))


def absent(row: Variable, job: Job, proof: tuple[str, ...]) -> str:
    """Why nothing that is installed here reads it; '' where something may."""
    software = job.software
    needed = NEEDS.get(row.reader)
    if software is None or needed is None or (proof and row.reader != "PyTorch"):
        return ""
    package, name = needed
    if package == "torch":
        return _no_torch(row, job)
    if package == "nccl":
        present = job.has_nccl
        missing = "NCCL is not installed here (torch is a CPU build)"
    else:
        present, missing = package in software.packages, f"{name} is not installed for this Python"
    if not present:
        return missing
    version = job.version(package)
    if row.since and version and release(version) < release(row.since):
        return f"{name} {version} does not read it: it came with {row.since}"
    return ""


def _no_torch(row: Variable, job: Job) -> str:
    software = job.software
    if software is None or not software.torch:
        return "torch is not installed for this Python"
    if row.name.startswith("TORCH_NCCL_") and not (software.torch_cuda or software.nccl):
        return f"torch {software.torch} has no NCCL groups"
    return ""
