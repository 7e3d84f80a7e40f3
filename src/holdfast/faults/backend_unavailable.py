"""The backend the job will ask for is not there.

What you see   `RuntimeError: Distributed package doesn't have NCCL built in`, `ProcessGroupNCCL is
               only supported with GPUs, no GPUs found!`, or `No backend type associated with
               device type cpu` at the first collective on a CPU tensor.
Why            NCCL is in CUDA builds of torch only and works on GPU tensors only; Gloo works on
               CPU tensors. A CPU wheel on a GPU machine (an index URL ending in /cpu, or a lock
               file made on a laptop) leaves the GPUs idle. A machine without GPUs cannot run
               NCCL, whatever is installed.
How to be sure `python -c "import torch, torch.distributed as d; print(torch.__version__,
               torch.version.cuda, d.is_nccl_available(), d.is_gloo_available())"`
Fix            Install the wheel that fits the driver (the selector on pytorch.org), or leave
               `backend` out of init_process_group: torch 2.6 and later choose by the device.
Sources        torch/distributed/distributed_c10d.py: init_process_group
               https://pytorch.org/get-started/locally/
               torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp: no GPUs found
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.facts import MachineFacts, Software, known
from holdfast.model import Evidence, Fault, Finding

FAULT = Fault(code="HOLD114", slug="backend-unavailable")


@FAULT.foresee
def gloo_is_there(facts: MachineFacts) -> Finding:
    software = known(facts.software)
    if not software.torch:
        return FAULT.note(
            "torch is not installed for this interpreter",
            reason=f"looked beside {software.executable}; the job may well use another Python",
            evidence=[Evidence(quote=f"Python {software.python}", source=software.executable)],
            fix="run `python -m holdfast check` with the Python that will train",
        )
    gloo = known(software.gloo)
    if not gloo:
        return FAULT.warning(
            f"torch {software.torch} was built without Gloo",
            reason="collectives on CPU tensors, and the smoke test's second stage, cannot work",
            evidence=[_build(software)],
            fix="install a stock wheel: https://pytorch.org/get-started/locally/",
        )
    return FAULT.ok(f"Gloo is there: {gloo}")


@FAULT.foresee
def nccl_fits_the_machine(facts: MachineFacts) -> Finding | Sequence[Finding]:
    software = known(facts.software)
    if not software.torch or "rocm" in software.torch:
        return ()  # said above; a ROCm build brings RCCL under NCCL's name
    gpus = [path for path in known(facts.accelerators) if path.startswith("/dev/nvidia")]
    count = "1 GPU is" if len(gpus) == 1 else f"{len(gpus)} GPUs are"
    if software.torch_cuda and gpus:
        return FAULT.ok(f"torch {software.torch} for CUDA {software.torch_cuda}, and {count} here")
    if software.torch_cuda:
        return FAULT.note(
            f"torch {software.torch} is a CUDA build, but no GPU is visible here",
            reason="backend 'nccl' would stop with 'no GPUs found' on this machine; 'gloo' works",
            evidence=[_build(software)],
        )
    if not gpus:
        return FAULT.ok(f"torch {software.torch} is a CPU build, and no GPU is here to be missed")
    hidden = facts.plan.environment.get("CUDA_VISIBLE_DEVICES")
    if hidden in ("", "-1"):
        return FAULT.note(
            f"{count} here, but hidden, and torch {software.torch} is a CPU build",
            reason=f"CUDA_VISIBLE_DEVICES={hidden!r} says that this job is meant for the CPU",
            evidence=[_build(software)],
        )
    return FAULT.warning(
        f"{count} here, but torch {software.torch} is a CPU build",
        reason="it has no NCCL: backend 'nccl' stops with \"Distributed package doesn't have NCCL "
        'built in", and a job on Gloo leaves the GPUs idle',
        evidence=[_build(software), *(Evidence(quote=path, source="/dev") for path in gpus)],
        fix="install a CUDA build that fits the driver: https://pytorch.org/get-started/locally/",
    )


def _build(software: Software) -> Evidence:
    cuda = f"CUDA {software.torch_cuda}" if software.torch_cuda else "no CUDA"
    return Evidence(quote=f"torch {software.torch}, {cuda}", source=software.executable)
