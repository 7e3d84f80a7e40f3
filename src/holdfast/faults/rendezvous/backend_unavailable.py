"""The backend that the job asks for is not available.

What you see   `RuntimeError: Distributed package doesn't have NCCL built in`, `ProcessGroupNCCL is
               only supported with GPUs, no GPUs found!`, or `No backend type associated with
               device type cpu` at the first collective on a CPU tensor.
Why            NCCL is part of CUDA builds of torch only and works on GPU tensors only; Gloo works
               on CPU tensors. A CPU wheel on a GPU machine (an index URL ending in /cpu, or a lock
               file made on a laptop) leaves the GPUs idle. A machine without GPUs cannot run NCCL,
               whatever is installed.
How to be sure `python -c "import torch, torch.distributed as d; print(torch.__version__,
               torch.version.cuda, d.is_nccl_available(), d.is_gloo_available())"`
Fix            Install the wheel that fits the driver (the selector on pytorch.org), or leave
               `backend` out of init_process_group: torch 2.6 and later choose it by the device.
Known limits   The check sees the Python that runs holdfast; a job in another environment or
               container may have another torch. It reads metadata and device files and does not
               import torch.
Sources        torch/distributed/distributed_c10d.py: init_process_group
               https://pytorch.org/get-started/locally/
               torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp: no GPUs found
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.machine import MachineFacts, Software, known
from holdfast.analysis.source.collectives import backends
from holdfast.analysis.source.program import Program
from holdfast.analysis.source.source import Source
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding

FAULT = Fault(
    code="HOLD114", slug="backend-unavailable", related=("device-ordinal", "driver-mismatch")
)

NOT_BUILT = FAULT.log_pattern(
    "not-built",
    r"Distributed package doesn't have (?P<backend>[\w ]+?) built.?in"
    r"|(?P<other>NCCL|UCC|MPI|GLOO|XCCL) is not available"
    # No transport of Gloo was built for this system.
    r"|makeDeviceFor\w+\(\): unsupported (?P<gloo>gloo) device"
    r"|but (?P<asked>NCCL) support is not compiled",
    anchors=(
        "Distributed package doesn't have",
        "but NCCL support is not compiled",
        "unsupported gloo device",
        *(f"{name} is not available" for name in ("NCCL", "UCC", "MPI", "GLOO", "XCCL")),
    ),
    example="RuntimeError: Distributed package doesn't have NCCL built in",
)
NO_HOROVOD = FAULT.log_pattern(
    "horovod",
    r"(?P<name>Gloo|MPI|NCCL) support (?:is required to use elastic training, but )?has not been "
    r"built|Neither (?P<neither>MPI nor Gloo) support has been built"
    r"|(?P<kind>Extension) horovod\.\w{1,40} has not been built",
    anchors=("has not been built", "nor Gloo support has been built"),
    example="ValueError: Gloo support has not been built.  If this is not expected, ensure CMake "
    "is installed and reinstall Horovod with HOROVOD_WITH_GLOO=1 to debug the build error.",
)
NO_CUDA = FAULT.log_pattern(
    "no-cuda",
    r"Torch not compiled with (?P<library>\w+) enabled",
    anchors=("Torch not compiled with",),
    example="AssertionError: Torch not compiled with CUDA enabled",
)
NO_GPU = FAULT.log_pattern(
    "no-gpu",
    r"ProcessGroupNCCL is only supported with GPUs, no GPUs found",
    anchors=("is only supported with GPUs",),
    example="RuntimeError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
)
WRONG_DEVICE = FAULT.log_pattern(
    "wrong-device",
    r"No backend type associated with device type (?P<device>\w+)|Tensors must be CUDA and dense",
    anchors=("No backend type associated with device", "Tensors must be CUDA and dense"),
    example="RuntimeError: No backend type associated with device type cpu",
)
UNKNOWN = FAULT.log_pattern(
    "unknown",
    r"(?:Invalid|Unknown|Unrecognized) (?:c10d )?backend(?: type)?:? '?(?P<name>\w+)"
    r"|Backend (?P<refused>\w+) does not support (?P<what>\w+)"
    r"|ProcessGroup(?P<group>\w+) does not support (?P<op>\w+)",
    anchors=(
        *("nvalid backend", "nknown c10d backend", "nrecognized backend", "nknown backend"),
        " does not support ",
    ),
    example="ValueError: Invalid backend: 'ncll'",
)
NO_LIBUV = FAULT.log_pattern(
    "no-libuv",
    r"use_libuv was requested but PyTorch was buil[dt] without libuv",
    anchors=("use_libuv was requested but",),
    example="torch.distributed.DistStoreError: use_libuv was requested but PyTorch was built "
    "without libuv support, run with USE_LIBUV=0 to disable it.",
)
GLOO_TYPE = FAULT.log_pattern(
    "gloo-type",
    r"ProcessGroupGloo.*(?:[Uu]nsupported|[Ii]nvalid) (?:device|scalar|data) type"
    r"|RuntimeError: Invalid scalar type",
    anchors=("nsupported device type", "nvalid scalar type", "nsupported data type"),
    example="RuntimeError: Invalid scalar type",
)


@FAULT.check(needs=("software",))
def torch_has_gloo(facts: MachineFacts) -> Finding:
    software = known(facts.software)
    if not software.torch:
        return FAULT.note(
            "torch is not installed for this interpreter",
            reason=f"holdfast looked in the environment of {software.executable}; the job may use "
            "another Python",
            evidence=[Evidence(quote=f"Python {software.python}", source=software.executable)],
            fix="run `python -m holdfast check` with the Python that will run the job",
        )
    gloo = known(software.gloo)
    if not gloo:
        return FAULT.warning(
            f"torch {software.torch} was built without Gloo",
            reason="collectives on CPU tensors fail, and so does the second stage of the smoke "
            "test",
            evidence=[_build(software)],
            fix="install a stock wheel: https://pytorch.org/get-started/locally/",
        )
    return FAULT.ok(f"Gloo is available: {gloo}")


@FAULT.check(needs=("accelerators", "software"))
def torch_build_fits_the_gpus(facts: MachineFacts) -> Finding | Sequence[Finding]:
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
        return FAULT.ok(f"torch {software.torch} is a CPU build, and this machine has no GPU")
    hidden = facts.plan.environment.get("CUDA_VISIBLE_DEVICES")
    if hidden in ("", "-1"):
        return FAULT.note(
            f"{count} here, but hidden, and torch {software.torch} is a CPU build",
            reason=f"CUDA_VISIBLE_DEVICES={hidden!r} means that this job runs on the CPU",
            evidence=[_build(software)],
        )
    return FAULT.warning(
        f"{count} here, but torch {software.torch} is a CPU build",
        reason="it has no NCCL: backend 'nccl' stops with \"Distributed package doesn't have NCCL "
        'built in", and a job on Gloo leaves the GPUs idle',
        evidence=[_build(software), *(Evidence(quote=path, source="/dev") for path in gpus)],
        fix="install a CUDA build that fits the driver: https://pytorch.org/get-started/locally/",
    )


class LineMeaning(NamedTuple):
    """What a log line means; {name} is what it names."""

    reason: str
    confidence: float
    what: str
    fix: str
    unnamed: str = ""


MEANINGS = {
    NOT_BUILT.name: LineMeaning(
        "this build of torch has no {name}",
        0.95,
        "torch without {name}",
        "install the wheel that fits the machine, or use a backend that this one has ('gloo')",
    ),
    NO_HOROVOD.name: LineMeaning(
        "this build of Horovod has no {name}",
        0.95,
        "Horovod without {name}",
        "install what it needs (CMake, MPI, the framework itself), then reinstall Horovod with "
        "HOROVOD_WITH_GLOO=1 or HOROVOD_WITH_MPI=1, so that a failing build says why; `horovodrun "
        "--check-build` lists what was built",
    ),
    NO_CUDA.name: LineMeaning(
        "this build of torch has no {name}, so no tensor can be moved there",
        0.75,
        "torch without {name}",
        "install the wheel that fits the driver (the selector on pytorch.org)",
    ),
    NO_GPU.name: LineMeaning(
        "the job asked for NCCL, but no GPU was visible",
        0.95,
        "no visible GPU",
        "make the GPUs visible (CUDA_VISIBLE_DEVICES, `--gpus all`, --gres), or use 'gloo'",
    ),
    WRONG_DEVICE.name: LineMeaning(
        "a collective was called on a tensor of device type {name}, but the group has no backend "
        "for that device",
        0.93,
        "tensor on {name}",
        "move the tensor to the group's device first, or create the group for both: "
        "`init_process_group('cpu:gloo,cuda:nccl')`",
        "cpu",
    ),
    NO_LIBUV.name: LineMeaning(
        "the store asked for libuv, which this build of torch does not have (usual on Windows)",
        0.95,
        "torch without libuv",
        "set `USE_LIBUV=0` in the environment of the launcher and the ranks",
    ),
    UNKNOWN.name: LineMeaning(
        "this torch cannot use the backend {name} in this way",
        0.8,
        "backend {name}",
        "choose 'nccl' for GPUs, 'gloo' for CPUs, or leave `backend` out",
    ),
    GLOO_TYPE.name: LineMeaning(
        "Gloo was given a tensor type that it does not support",
        0.5,
        "tensor type",
        "convert the tensor (float32), or use NCCL; newer versions of torch support more types",
    ),
}


@FAULT.explain
def backend_was_missing(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(*FAULT.log_patterns)
    if not seen:
        return None
    first = seen[0]
    meaning = MEANINGS[first.pattern]
    name = next(iter(first.fields.values()), meaning.unnamed)
    return FAULT.diagnosis(
        meaning.reason.format(name=name),
        confidence=meaning.confidence,
        seen=seen,
        culprit=Culprit(what=meaning.what.format(name=name), host=first.line.host),
        fix=meaning.fix,
        next='python -c "import torch, torch.distributed as d; print(torch.__version__, '
        'torch.version.cuda, torch.cuda.device_count(), d.is_nccl_available())"',
    )


def _build(software: Software) -> Evidence:
    cuda = f"CUDA {software.torch_cuda}" if software.torch_cuda else "no CUDA"
    return Evidence(quote=f"torch {software.torch}, {cuda}", source=software.executable)


# --- in what a user wrote ------------------------------------------------------------------------


@FAULT.lint_python
def script_asks_for_a_missing_backend(program: Program, source: Source) -> Iterator[Finding]:
    yield from map(FAULT.from_problem, backends.problems(program, complete=source.complete))
