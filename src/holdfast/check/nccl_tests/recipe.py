"""The lines to type, for what this machine has. Pure."""

from __future__ import annotations

import shlex
from typing import NamedTuple

from holdfast.analysis.machine import Gpu
from holdfast.check.nccl_tests.toolchain import Toolchain

REPOSITORY = "https://github.com/NVIDIA/nccl-tests"
ARCHITECTURES = {
    "volta": ("70",),
    "turing": ("75",),
    "ampere": ("80", "86"),
    "ada": ("89",),
    "hopper": ("90",),
    "blackwell": ("100", "120"),
}
"""by the name that NVML gives; one name may stand for a data centre's and a workstation's chip"""
CARD = {"A100": "80", "A30": "80", "A800": "80", "B200": "100", "GB200": "100"}
LARGEST = 8 << 30
"""bytes: sizes up to several GiB are needed to see the peak on NVLink"""
BUFFERS = 4
"""a test holds what is sent, what is received, what is expected, and NCCL's own buffers"""
GIB = 1 << 30
SECONDS = 120
RESULT = "nccl-tests.json"


class NcclTestsRecipe(NamedTuple):
    remarks: tuple[str, ...]
    """what is missing, and why a line is as it is"""
    build: tuple[str, ...]
    run: tuple[str, ...]


class NcclTestsJob(NamedTuple):
    gpus: int
    """of each node"""
    nodes: int
    memory: int | None
    """bytes of the smallest GPU"""
    architectures: tuple[str, ...]
    """of the GPUs here, '90'"""


def architectures(gpus: tuple[Gpu, ...]) -> tuple[str, ...]:
    """Compute capabilities to build for; () where they are not known: the Makefile builds all."""
    found: set[str] = set()
    for gpu in gpus:
        by_card = next((sm for card, sm in CARD.items() if card in gpu.name), "")
        known = (by_card,) if by_card else ARCHITECTURES.get(gpu.architecture, ())
        if not known:
            return ()
        found.update(known)
    return tuple(sorted(found, key=int))


def recipe(tools: Toolchain, job: NcclTestsJob) -> NcclTestsRecipe:
    by_mpi = bool(tools.mpi_home and tools.mpirun) and (job.nodes > 1 or job.gpus > 1)
    return NcclTestsRecipe(
        remarks=tuple(_remarks(tools, job, by_mpi=by_mpi)),
        build=tuple(_build(tools, job, by_mpi=by_mpi)),
        run=_run(tools, job, by_mpi=by_mpi),
    )


def _remarks(tools: Toolchain, job: NcclTestsJob, *, by_mpi: bool) -> list[str]:
    said = []
    if not job.gpus:
        said.append("no GPU is visible here: the lines are for a machine that has one")
    if not tools.cuda_home:
        said.append("nvcc was not found: install the CUDA toolkit, or set CUDA_HOME to it")
    if tools.nccl_package:
        said.append("built against the NCCL of the Python package, which is the one torch loads")
    elif not tools.nccl_home:
        said.append("nccl.h was not found: install libnccl-dev, or set NCCL_HOME to NCCL's folder")
    else:
        said.append(
            f"built against the NCCL in {tools.nccl_home}; torch may load another one: compare "
            "with `python -c 'import torch; print(torch.cuda.nccl.version())'`"
        )
    if job.nodes > 1 and not by_mpi:
        said.append(
            "no MPI was found (mpi.h and mpirun), and nccl-tests needs it for several nodes: the "
            "line is for this node alone; `holdfast check --smoke` needs none"
        )
    elif not by_mpi and job.gpus > 1:
        said.append(
            "no MPI was found: one process drives all GPUs, which is not how torchrun starts ranks"
        )
    return said


def _build(tools: Toolchain, job: NcclTestsJob, *, by_mpi: bool) -> list[str]:
    lines = [] if tools.source else [f"git clone --depth 1 {REPOSITORY}"]
    settings = []
    if tools.cuda_home:
        settings.append(f"CUDA_HOME={shlex.quote(tools.cuda_home)}")
    if tools.nccl_package:
        # The package has no libnccl.so, which is the name that -lnccl looks for.
        package = tools.nccl_package
        lines.append(
            "mkdir -p nccl-home/lib && "
            f"ln -sfn {shlex.quote(f'{package}/include')} nccl-home/include && "
            f"ln -sf {shlex.quote(f'{package}/lib/libnccl.so.2')} nccl-home/lib/libnccl.so"
        )
        settings.append('NCCL_HOME="$PWD/nccl-home"')
    elif tools.nccl_home not in ("", "/usr"):
        settings.append(f"NCCL_HOME={shlex.quote(tools.nccl_home)}")
    if by_mpi:
        settings.append(f"MPI=1 MPI_HOME={shlex.quote(tools.mpi_home)}")
    if job.architectures:
        codes = " ".join(f"-gencode=arch=compute_{sm},code=sm_{sm}" for sm in job.architectures)
        settings.append(f"NVCC_GENCODE={shlex.quote(codes)}")
    return [*lines, " ".join(["make -C nccl-tests -j", *settings])]


def _run(tools: Toolchain, job: NcclTestsJob, *, by_mpi: bool) -> tuple[str, ...]:
    gpus = max(1, job.gpus)
    test = (
        f"./nccl-tests/build/all_reduce_perf -b 8 -e {_largest(job)}G -f 2 -g "
        f"{1 if by_mpi else gpus} -T {SECONDS} -J {RESULT}"
    )
    library = f"{shlex.quote(f'{tools.nccl_package}/lib')}" if tools.nccl_package else ""
    judge = f"holdfast explain {RESULT}"
    if not by_mpi:
        before = f"LD_LIBRARY_PATH={library}:$LD_LIBRARY_PATH " if library else ""
        return before + test, judge
    path = f" -x LD_LIBRARY_PATH={library}:$LD_LIBRARY_PATH" if library else ""
    hosts = " --hostfile HOSTS" if job.nodes > 1 else ""
    spread = f"-np {gpus * job.nodes} -N {gpus}{hosts} --bind-to none{path}"
    return f"{shlex.quote(tools.mpirun)} {spread} {test}", judge


def _largest(job: NcclTestsJob) -> int:
    """GiB: a power of two that fits the smallest GPU."""
    room = min(LARGEST, job.memory // BUFFERS) if job.memory else LARGEST
    return max(1, 1 << (room // GIB).bit_length() - 1) if room >= GIB else 1
