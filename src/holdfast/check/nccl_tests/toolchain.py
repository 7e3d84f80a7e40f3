"""What nccl-tests needs to be built, as found on this machine: nvcc, NCCL's header, MPI."""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Iterable, Mapping
from typing import NamedTuple

CUDA_FOLDERS = ("/usr/local/cuda", "/opt/cuda", "/usr/lib/cuda")
MPI_FOLDERS = (
    "/usr/lib/*/openmpi",
    "/usr/lib64/openmpi",
    "/usr/mpi/gcc/openmpi-*",
    "/opt/hpcx/ompi",
    "/opt/amazon/openmpi",
)
"""of Open MPI, whose options the line has"""


class Toolchain(NamedTuple):
    """Each is '' where nothing was found."""

    source: str
    """a checkout of nccl-tests in the current folder, or a built one"""
    cuda_home: str
    """holds bin/nvcc and CUDA's headers"""
    nccl_home: str
    """holds include/nccl.h and lib/libnccl.so"""
    nccl_package: str
    """folder of the Python package: it has the header, and a library without the name that the
    linker looks for"""
    mpi_home: str
    """holds include/mpi.h"""
    mpirun: str


def find_toolchain(environment: Mapping[str, str], libraries: Iterable[str]) -> Toolchain:
    """`libraries`: every libnccl that a job could load, the first one first."""
    packages = [path.rpartition("/lib/")[0] for path in libraries if "/nvidia/nccl/lib/" in path]
    return Toolchain(
        source="nccl-tests" if os.path.exists("nccl-tests/src/common.cu") else "",
        cuda_home=_holding("bin/nvcc", _with_headers(_cuda_folders(environment))),
        nccl_home=_nccl_home(environment),
        nccl_package=_holding("include/nccl.h", packages),
        mpi_home=_holding("include/mpi.h", _mpi_folders(environment)),
        mpirun=shutil.which("mpirun", path=environment.get("PATH")) or "",
    )


def _holding(file: str, folders: Iterable[str]) -> str:
    return next((f for f in folders if f and os.path.isfile(os.path.join(f, file))), "")


def _with_headers(folders: Iterable[str]) -> list[str]:
    """An nvcc alone may be a wrapper on PATH, far from what it compiles with."""
    return [folder for folder in folders if _holding("include/cuda_runtime.h", [folder])]


def _cuda_folders(environment: Mapping[str, str]) -> list[str]:
    nvcc = shutil.which("nvcc", path=environment.get("PATH"))
    beside = [os.path.dirname(os.path.dirname(os.path.realpath(nvcc)))] if nvcc else []
    named = [environment.get(name, "") for name in ("CUDA_HOME", "CUDA_PATH")]
    return [*named, *beside, *CUDA_FOLDERS, *sorted(glob.glob("/usr/local/cuda-*"), reverse=True)]


def _nccl_home(environment: Mapping[str, str]) -> str:
    """Debian puts the library into a folder of the processor's name, which the compiler knows."""
    folders = [environment.get("NCCL_HOME", ""), "/usr", "/usr/local", "/opt/nccl"]
    libraries = ("lib/libnccl.so", "lib64/libnccl.so", "lib/*-linux-gnu/libnccl.so")
    return next(
        (
            folder
            for folder in folders
            if _holding("include/nccl.h", [folder])
            and any(glob.glob(os.path.join(glob.escape(folder), name)) for name in libraries)
        ),
        "",
    )


def _mpi_folders(environment: Mapping[str, str]) -> list[str]:
    mpicc = shutil.which("mpicc", path=environment.get("PATH"))
    beside = [os.path.dirname(os.path.dirname(mpicc))] if mpicc else []
    return [
        environment.get("MPI_HOME", ""),
        *beside,
        *(folder for pattern in MPI_FOLDERS for folder in sorted(glob.glob(pattern))),
    ]
