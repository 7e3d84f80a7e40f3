"""What is installed, and what it reads."""

from __future__ import annotations

from holdfast.facts.base import Fact, Unread


class NcclLibrary(Fact, frozen=True):
    path: str
    version: str
    """'' when the file does not tell"""
    origin: str
    """'LD_PRELOAD', 'python package', 'LD_LIBRARY_PATH', 'system', 'static in torch'"""


class Software(Fact, frozen=True):
    python: str
    executable: str
    torch: str
    """'' when not installed for this interpreter"""
    torch_cuda: str
    """the CUDA version torch was built for, '' for a CPU build"""
    gloo: str | Unread
    """'built into torch 2.13.0', or '' """
    nccl: tuple[NcclLibrary, ...]
    """in the order the loader would take them"""
    packages: dict[str, str]
    """versions of accelerate, deepspeed, lightning, horovod, transformers… where installed"""


class VariableSearch(Fact, frozen=True):
    """Which installed program's own strings hold the name of a variable."""

    searched: tuple[str, ...]
    """programs searched: 'libtorch_cpu.so (torch 2.13.0)', 'accelerate 1.9.0'"""
    prefixes: tuple[str, ...]
    """prefixes whose reader was among them, so that absence proves something: 'NCCL_'…"""
    found: dict[str, tuple[str, ...]]
    """variable -> programs that hold its name; every variable asked for has an entry"""
