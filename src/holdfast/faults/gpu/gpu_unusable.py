"""A CUDA program cannot use a GPU.

What you see   `nvidia-smi` lists the GPU, or fails with `Failed to initialize NVML: Unknown Error`;
               torch says `CUDA unknown error`, `no CUDA-capable device is detected`, `CUDA-capable
               device(s) is/are busy or unavailable`, or a rank hangs at its first use of the GPU.
Why            The device files a program needs (/dev/nvidia-uvm, /dev/nvidiaN) are missing or not
               permitted, often in a container that lost them; a module is not loaded; the GPU is
               in a bad state and does not answer.
How to be sure `holdfast check --only gpu-unusable` starts a small CUDA program for each GPU: it
               initialises CUDA, and on a GPU that nothing uses also opens a context and copies a
               MiB there and back.
Fix            Restart the container, load nvidia_uvm, or fix the rights of /dev/nvidia*; reset a
               GPU that does not answer (`sudo nvidia-smi -r -i N`), else reboot or use another
               machine.
Known limits   On a GPU that another program uses only CUDA's initialisation is tried. No kernel is
               run. A GPU divided by MIG is not tried, and MPS is passed by: its daemon would start
               a server for the look.
Sources        https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html (CUresult)
               https://github.com/NVIDIA/nvidia-container-toolkit/issues/48
               https://manpages.ubuntu.com/manpages/kinetic/man1/nvidia-cuda-mps-control.1.html
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast import text
from holdfast.analysis.machine import CudaFacts, CudaProbe, MachineFacts, NvidiaFacts, known
from holdfast.analysis.machine.gpu_lines import gpu_numbers
from holdfast.analysis.machine.nvlink_fabric import NOT_READY, index_of, of_machine
from holdfast.fault import Fault
from holdfast.findings import Evidence, Finding

FAULT = Fault(
    code="HOLD318",
    slug="gpu-unusable",
    gpus_only=True,
    related=("fabric-manager", "driver-mismatch", "gpu-hardware", "container-flags"),
)

OF_OTHERS = (NOT_READY, 803, 804)
"""errors of CUDA that fabric-manager and driver-mismatch name"""
NO_PERMISSION, UNKNOWN, NO_ANSWER = 4, 999, -1
"""of NVML; its other errors are driver-mismatch's"""
DEVICE_FILES = (
    "a device file or module is missing: `ls -l /dev/nvidia*` must show nvidia-uvm; load it with "
    "`sudo modprobe nvidia_uvm`, in a container restart the container"
)
RESET = (
    "end what runs there and `sudo nvidia-smi -r -i {gpu}`, or reboot; `dmesg | grep -i nvrm` has "
    "the driver's own words; else use another machine"
)
LOST = (
    "in a container: restart it, it lost its GPUs (`systemctl daemon-reload` on the machine does "
    "that); else `dmesg | grep -i nvrm`"
)
MEANINGS = {
    2: ("memory that no visible program holds is taken", RESET),
    46: ("the GPU is in a bad state, or its compute mode keeps programs out", RESET),
    100: ("CUDA may not open the GPU that the driver lists", DEVICE_FILES),
    101: ("CUDA may not open the GPU that the driver lists", DEVICE_FILES),
    214: ("the GPU met a memory error that cannot be corrected", RESET),
    304: ("a call of the operating system failed", DEVICE_FILES),
    999: ("CUDA gives no reason; mostly a device file or module is missing", DEVICE_FILES),
}


@FAULT.check(needs=("nvidia", "cuda"))
def cuda_fails_on_a_gpu(facts: MachineFacts) -> Finding | Sequence[Finding]:
    nvidia, cuda = known(facts.nvidia), known(facts.cuda)
    if not nvidia.present:
        return FAULT.does_not_apply("no NVIDIA driver on this machine")
    if nvidia.error_code in (NO_PERMISSION, UNKNOWN, NO_ANSWER):
        return _driver_refuses(nvidia)
    found = list(_failing(facts, nvidia, cuda))
    if found:
        return found
    if not cuda.probes:
        return FAULT.does_not_apply("the job sees no GPU on which CUDA could be tried")
    skipped = [probe for probe in cuda.probes if probe.skipped]
    used = f", {len(skipped)} of them only so far: {skipped[0].skipped}" if skipped else ""
    return FAULT.ok(f"CUDA starts on {text.counted(len(cuda.probes), 'GPU')}{used}")


def _driver_refuses(nvidia: NvidiaFacts) -> Finding:
    summary, fix = {
        NO_PERMISSION: (
            "this user may not use the NVIDIA driver",
            "let an administrator give the user rights to /dev/nvidiactl and /dev/nvidia0…",
        ),
        NO_ANSWER: (
            "the NVIDIA driver does not answer",
            "read `dmesg | grep -i nvrm`; reboot, or use another machine",
        ),
    }.get(
        nvidia.error_code,
        ("the NVIDIA driver cannot be used here", LOST),
    )
    return FAULT.error(
        f"{summary}: {nvidia.error}",
        reason="no CUDA program can start",
        evidence=[Evidence(quote=nvidia.error, source="NVML")],
        fix=fix,
    )


def _failing(facts: MachineFacts, nvidia: NvidiaFacts, cuda: CudaFacts) -> Iterator[Finding]:
    """One finding for each way to fail. GPUs that NVML cannot read are gpu-hardware's."""
    left = {gpu.index for gpu in nvidia.gpus if gpu.mig or gpu.unread}
    fabric = of_machine(facts.nvidia, facts.cuda).refused
    alike: dict[tuple[str, str], list[CudaProbe]] = {}
    for probe in cuda.probes:
        named = probe.code in OF_OTHERS or probe in fabric or probe.step == "load"
        if probe.code and not named and index_of(probe, nvidia.gpus) not in left:
            alike.setdefault((probe.step, probe.error), []).append(probe)
    for probes in alike.values():
        yield _one_way(probes, cuda)


def _one_way(probes: Sequence[CudaProbe], cuda: CudaFacts) -> Finding:
    first = probes[0]
    indices = [probe.index for probe in probes]
    if first.timed_out:
        return _no_answer(first, indices, cuda)
    meaning, fix = MEANINGS.get(first.code, ("the GPU is in a bad state", RESET))
    code = f" ({first.code})" if first.code > 0 else ""
    return FAULT.error(
        f"CUDA fails on {gpu_numbers(indices)}: {first.error}{code}",
        reason=f"{meaning}; a small program of its own met this at '{first.step}'",
        evidence=[
            Evidence(
                quote=f"{gpu_numbers(indices)}: {first.step}: {first.error}",
                source=cuda.library or "CUDA",
            )
        ],
        fix=fix.format(gpu=first.index),
    )


def _no_answer(probe: CudaProbe, indices: Sequence[int], cuda: CudaFacts) -> Finding:
    """A GPU that hangs and one that starts slowly look the same until one has answered."""
    return FAULT.warning(
        f"CUDA has not started on {gpu_numbers(indices)}: {probe.error}",
        reason=f"a small program of its own did not return from '{probe.step}': the GPU hangs, and "
        "a rank would hang there too, or it is slow to start, as without persistence mode",
        evidence=[
            Evidence(
                quote=f"{gpu_numbers(indices)}: {probe.step}: {probe.error}",
                source=cuda.library or "CUDA",
            )
        ],
        fix=f"wait longer: `holdfast check --only gpu-unusable --deadline 120`; if it hangs, "
        f"{RESET.format(gpu=probe.index)}",
    )
