"""Versions of Python, torch, Gloo and NCCL, without importing torch."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import sys
from typing import NamedTuple

from holdfast.analysis.machine import Plan, Software, Unread
from holdfast.check.readers.nccl_libraries import nccl_libraries, net_plugins
from holdfast.system import elf_strings

PACKAGES = (
    "accelerate",
    "deepspeed",
    "horovod",
    "lightning",
    "pytorch-lightning",
    "torchdata",
    "transformers",
)


class Torch(NamedTuple):
    folder: str
    version: str
    cuda: str
    """'' for a CPU or ROCm build"""


def read_software(plan: Plan) -> Software:
    torch = find_torch()
    return Software(
        python=platform.python_version(),
        executable=sys.executable,
        torch=torch.version if torch else "",
        torch_cuda=torch.cuda if torch else "",
        gloo=_gloo(torch) if torch else "",
        nccl=nccl_libraries(plan, torch.folder if torch else ""),
        net_plugins=net_plugins(plan),
        packages={name: version for name in PACKAGES if (version := package_version(name))},
    )


def find_torch() -> Torch | None:
    """Where torch is, and what its version.py says; finding a package does not import it."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.origin:  # a mere folder named torch has no origin
        return None
    folder = os.path.dirname(spec.origin)
    try:
        with open(os.path.join(folder, "version.py"), encoding="utf-8") as file:
            text = file.read()
    except FileNotFoundError:
        text = ""
    version = assigned("__version__", text) or package_version("torch")
    return Torch(folder, version, assigned("cuda", text))


def assigned(name: str, source: str) -> str:
    """The string a line like `cuda: Optional[str] = '13.0'` assigns; '' for None."""
    found = re.search(rf"^{name}\b[^=\n]*=\s*['\"]([^'\"\n]*)['\"]", source, re.MULTILINE)
    return found[1] if found else ""


def package_version(name: str) -> str:
    """'' when the package is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _gloo(torch: Torch) -> str | Unread:
    """torch's Python binding names the class only in a build with Gloo."""
    binding = os.path.join(torch.folder, "lib", "libtorch_python.so")
    try:
        has_gloo = elf_strings.find_words(binding, ["ProcessGroupGloo"])
    except (OSError, ValueError) as problem:
        return Unread(why=f"could not look into {binding}: {problem}")
    return f"built into torch {torch.version}" if has_gloo else ""
