from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.machine import CudaFacts, MachineFacts, NvidiaFacts, Software, Unread
from holdfast.analysis.machine.cuda_versions import code_for, oldest_driver, why_it_runs
from tests.analysis.logs.patterns.made import wreckage
from tests.faults.machines import a_machine
from tests.faults.made_gpus import a_gpu, cuda, nvidia
from tests.faults.table import (
    check_table,
    explain_table,
    not_applicable,
    passes_over,
    recognises,
    silent,
    skips,
    speaks,
)

replace = msgspec.structs.replace
COMPAT: dict[str, Any] = {
    "library": "/usr/local/cuda-13.0/compat/libcuda.so.580.65.06",
    "compat": True,
}


def met(code: int, error: str, step: str = "init", **changes: Any) -> CudaFacts:
    """Every GPU met this."""
    facts = cuda(**changes)
    probes = (replace(p, step=step, code=code, error=error) for p in facts.probes)
    return replace(facts, probes=tuple(probes))


def torch_of(version: str, **changes: Any) -> MachineFacts:
    """A machine whose torch was built with this CUDA; '' is a CPU build."""
    facts = a_machine(**changes)
    assert isinstance(facts.software, Software)
    return replace(facts, software=replace(facts.software, torch_cuda=version))


MISMATCHED = nvidia(
    error="Driver/library version mismatch", error_code=18, library="580.105.08", cuda="", gpus=()
)
UNLOADED = NvidiaFacts(present=True, library="580.95.05", error="Driver Not Loaded", error_code=9)
WAITING = replace(UNLOADED, unbound=8)
NO_LIBRARY = "libcuda.so.1: cannot open shared object file: No such file or directory"
OLD = nvidia(module="550.54.15", cuda="12.4")

test_check = check_table(
    "driver-mismatch",
    speaks(
        "error",
        a_machine(nvidia=MISMATCHED, cuda=met(803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH")),
        saying=[
            "library 580.105.08 does not fit its kernel module 580.95.05",
            "upgraded without a reboot",
            "GPUs 0-3: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)",
            "sudo modprobe nvidia",
        ],
    ),
    speaks("error", a_machine(nvidia=MISMATCHED), saying=["does not fit its kernel module"]),
    speaks(
        "error",  # NVML fits, libcuda does not
        a_machine(cuda=met(803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH")),
        saying=[
            "CUDA library /usr/lib/x86_64-linux-gnu/libcuda.so.1 does not fit",
            "a container brings the library of another driver",
        ],
    ),
    speaks(
        "error",
        a_machine(cuda=met(804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", **COMPAT)),
        saying=["forward-compatibility library", "/usr/local/cuda-13.0/compat out of LD_LIBRARY"],
    ),
    speaks(
        "error",
        a_machine(cuda=met(803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", **COMPAT)),
        saying=["forward-compatibility library does not work here"],
        not_saying=["rmmod"],
    ),
    speaks(
        "error",
        torch_of("13.0", nvidia=OLD, cuda=cuda(version="12.4")),
        saying=[
            "driver 550.54.15 is too old for torch: it runs CUDA 12.4, torch is built for 13.0",
            "branch 580",
            "install a torch built for a CUDA",
        ],
    ),
    speaks(
        "error",  # libcuda could not be asked; NVML knows as well
        torch_of("13.0", nvidia=OLD, cuda=cuda(version="", library="")),
        saying=["it runs CUDA 12.4"],
    ),
    speaks(
        "error",
        a_machine(nvidia=UNLOADED, cuda=cuda(0, library="", version="")),
        saying=["kernel module is not loaded", "dmesg"],
    ),
    speaks(
        "warning",
        a_machine(nvidia=WAITING, cuda=cuda(0, library="", version=""), accelerators=()),
        saying=["8 NVIDIA GPUs on the PCI bus without a kernel driver", "dkms status"],
    ),
    not_applicable(
        torch_of("", nvidia=WAITING, cuda=cuda(0, library="", version=""), accelerators=()),
        saying=["torch has no CUDA"],
    ),
    speaks(
        "error",
        a_machine(cuda=met(-1, NO_LIBRARY, step="load", library="", version="")),
        saying=["libcuda.so.1) cannot be loaded", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"],
    ),
    speaks(
        "error",
        torch_of("13.0", nvidia=nvidia(a_gpu(name="Tesla V100-SXM2-32GB", architecture="volta"))),
        saying=["no code for GPU 0 (Tesla V100-SXM2-32GB)", "CUDA 12.6"],
    ),
    speaks(
        "warning",
        torch_of("12.6", nvidia=nvidia(a_gpu(name="NVIDIA B200", architecture="blackwell"))),
        saying=["no compiled code for GPU 0 (NVIDIA B200)", "CUDA 12.8 or newer"],
    ),
    silent(torch_of("12.8", nvidia=nvidia(a_gpu(architecture="blackwell")))),
    silent(torch_of("12.6", nvidia=nvidia(a_gpu(architecture="volta")))),
    silent(torch_of("13.0", nvidia=nvidia(a_gpu(architecture="")))),
    silent(  # a display card that the job does not see
        torch_of("13.0", nvidia=nvidia(a_gpu(0), a_gpu(1, architecture="pascal")), cuda=cuda(1))
    ),
    silent(a_machine()),
    silent(torch_of("12.8")),  # an older CUDA
    silent(torch_of("12.8", nvidia=OLD, cuda=cuda(version="12.4"))),  # minor-version compatibility
    silent(torch_of("13.0", nvidia=OLD, cuda=cuda(version="13.0", **COMPAT))),  # forward
    silent(torch_of("")),
    silent(torch_of("", cuda=met(-1, NO_LIBRARY, step="load", library="", version=""))),
    silent(a_machine(cuda=met(802, "CUDA_ERROR_SYSTEM_NOT_READY"))),  # fabric-manager says it
    silent(a_machine(cuda=cuda(0))),  # CUDA_VISIBLE_DEVICES hides them all
    not_applicable(a_machine(nvidia=NvidiaFacts(present=False)), saying=["no NVIDIA driver"]),
    not_applicable(
        # a login node: the driver's files without any GPU
        a_machine(nvidia=UNLOADED, accelerators=(), cuda=cuda(0, library="", version="")),
        saying=["no GPU device"],
    ),
    skips(
        a_machine(
            nvidia=nvidia(error="Unknown Error", error_code=999, cuda="", gpus=()),
            cuda=cuda(version=""),
        ),
        saying=["Unknown Error"],
    ),
    skips(a_machine(nvidia=Unread(why="late")), saying=["late"]),
    skips(a_machine(cuda=Unread(why="late")), saying=["late"]),
    skips(torch_of("13.0", nvidia=nvidia(cuda=""), cuda=cuda(version="")), saying=["which CUDA"]),
)


@pytest.mark.parametrize(
    ("driver", "program", "rule"),
    [
        ("13.0", "13.0", "as new"),
        ("13.0", "11.8", "as new"),
        ("12.2", "12.8", "minor-version"),
        ("11.0", "11.8", "minor-version"),
        ("10.1", "10.2", None),
        ("12.9", "13.0", None),
    ],
)
def test_rules_of_compatibility(driver: str, program: str, rule: str | None) -> None:
    told = why_it_runs(driver, program)
    assert told is not None
    assert (rule in told) if rule else told == ""


VERSIONS = st.tuples(st.integers(11, 15), st.integers(0, 9))


@given(VERSIONS, VERSIONS)
def test_an_older_major_version_is_all_that_stops_a_program(
    driver: tuple[int, int], program: tuple[int, int]
) -> None:
    can, wants = ("{}.{}".format(*version) for version in (driver, program))
    assert bool(why_it_runs(can, wants)) == (driver[0] >= program[0])


@pytest.mark.parametrize(("driver", "program"), [("", "13.0"), ("13.0", ""), ("N/A", "13.0")])
def test_a_version_that_is_not_told_proves_nothing(driver: str, program: str) -> None:
    assert why_it_runs(driver, program) is None


@pytest.mark.parametrize(
    ("architecture", "program", "code"),
    [
        ("volta", "13.0", "none"),
        ("maxwell", "12.9", "compiled"),
        ("turing", "13.1", "compiled"),
        ("blackwell", "12.6", "intermediate"),
        ("blackwell", "12.8", "compiled"),
        ("rubin", "13.0", "compiled"),
        ("", "13.0", ""),
        ("volta", "", ""),
    ],
)
def test_which_code_a_program_can_hold(architecture: str, program: str, code: str) -> None:
    assert code_for(architecture, program) == code


@pytest.mark.parametrize(("program", "branch"), [("11.8", "450"), ("13.1", "580"), ("14.0", "")])
def test_the_oldest_driver_that_would_do(program: str, branch: str) -> None:
    assert oldest_driver(program) == branch


test_explain = explain_table(
    "driver-mismatch",
    recognises(
        wreckage("RuntimeError: HIP error: invalid device function"),
        sure=0.93,
        saying=["no code for this GPU"],
    ),
    recognises(
        wreckage(
            "NCCL WARN Failed to find CUDA library libcuda.so (NCCL_CUDA_PATH='') : libcuda.so: "
            "cannot open"
        ),
        sure=0.85,
        saying=["no NVIDIA driver"],
    ),
    recognises(
        wreckage(
            "nvidia-container-cli: initialization error: nvml error: driver/library version "
            "mismatch: unknown."
        ),
        sure=0.97,
        saying=["upgrade without a reboot"],
    ),
    recognises(
        wreckage("NVMLError_LibRmVersionMismatch: RM has detected an NVML/RM version mismatch."),
        sure=0.97,
        saying=["reboot"],
    ),
    recognises(
        wreckage(
            "kernel version 470.57.2 does not match DSO version 470.63.1 -- cannot find working "
            "devices"
        ),
        sure=0.97,
        saying=["library 470.63.1, kernel module 470.57.2"],
    ),
    recognises(
        wreckage(
            "nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: "
            "cannot open sh"
        ),
        sure=0.85,
        saying=["no NVIDIA driver is reachable"],
    ),
    recognises(
        wreckage(
            "nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown."
        ),
        sure=0.85,
        saying=["install the driver"],
    ),
    recognises(wreckage("CUDA_ERROR_UNSUPPORTED_PTX_VERSION"), sure=0.95, saying=["too old"]),
    recognises(
        wreckage(
            "[rank0]: RuntimeError: CUDA unknown error - this may be due to an incorrectly set up "
            "environment"
        ),
        sure=0.4,
        rank=0,
        saying=["failed without a reason", "nvidia_uvm"],
    ),
    passes_over(
        wreckage(
            "W tensorflow/stream_executor/platform/default/dso_loader.cc:64] Could not load "
            "dynamic library 'libcuda.so.1'; dlerror: libcuda.so.1: cannot open shared object file"
        )
    ),
    recognises(
        wreckage(
            "[rank0]: RuntimeError: The NVIDIA driver on your system is too old (found version "
            "11040). Please update your GPU driver"
        ),
        sure=0.95,
        rank=0,
        saying=["the driver can run CUDA 11.4", "too old"],
    ),
    recognises(
        wreckage(
            "vm:1:1 [0] NCCL WARN Cuda failure 'CUDA driver version is insufficient for CUDA "
            "runtime version'",
            versions={"driver": "410.48", "cuda": "10.1"},
        ),
        sure=0.95,
        what="NVIDIA driver 410.48",
        saying=["driver 410.48, CUDA 10.1"],
    ),
    recognises(
        wreckage("Failed to initialize NVML: Driver/library version mismatch"),
        sure=0.97,
        saying=["reboot"],
    ),
    recognises(
        wreckage("Error 804: forward compatibility was attempted on non supported HW"),
        sure=0.95,
        saying=["cuda-compat"],
    ),
    recognises(
        wreckage("[rank1]: CUDA error: no kernel image is available for execution on the device"),
        sure=0.93,
        rank=1,
        saying=["no code for this GPU", "TORCH_CUDA_ARCH_LIST"],
    ),
    recognises(
        wreckage(
            "NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with the "
            "current PyTorch installation."
        ),
        sure=0.93,
        saying=["the GPU is sm_120"],
    ),
    recognises(
        wreckage(
            "The detected CUDA version (11.8) mismatches the version that was used to compile "
            "PyTorch (12.4)."
        ),
        sure=0.95,
        saying=["toolkit 11.8, torch's CUDA 12.4"],
    ),
    recognises(
        wreckage("ImportError: libcuda.so.1: cannot open shared object file: No such file"),
        sure=0.85,
        saying=["--gpus all"],
    ),
    recognises(
        wreckage(
            "UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found "
            "version 11040)."
        ),
        sure=0.6,
        saying=["CUDA 11.4"],
    ),
    passes_over(
        wreckage("UserWarning: CUDA initialization: Found no NVIDIA driver on your system. Please")
    ),
    passes_over(wreckage("NCCL version 2.28.9+cuda13.0", "Driver Version: 550.54.15")),
)
