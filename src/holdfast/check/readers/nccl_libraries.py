"""Every libnccl that a job here could load, in the loader's order."""

from __future__ import annotations

import functools
import glob
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator

from holdfast.analysis.machine import NcclLibrary, Plan
from holdfast.system import elf_strings

SONAME = "libnccl.so.2"
"""the name torch asks the loader for"""
SYSTEM_FOLDERS = (
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
)
OWN_NAME = "NCCL_BUFFSIZE"
"""a variable that NCCL itself reads, and torch does not: its own code must be in there"""


def nccl_libraries(plan: Plan, torch_folder: str) -> tuple[NcclLibrary, ...]:
    """One entry per file; where a file can be found in several ways, the first counts."""
    found: dict[str, NcclLibrary] = {}
    for path, origin in _places(plan):
        real = os.path.realpath(path)
        if real not in found and os.path.isfile(real):
            version = _version(path, real)
            found[real] = NcclLibrary(path=path, version=version, origin=origin)
    built_in = os.path.join(torch_folder, "lib", "libtorch_cuda.so")
    if torch_folder and _holds_nccl(built_in):
        version = version_inside(built_in)
        found[built_in] = NcclLibrary(path=built_in, version=version, origin="static in torch")
    return tuple(found.values())


def _places(plan: Plan) -> Iterator[tuple[str, str]]:
    for name in re.split(r"[\s:]+", plan.environment.get("LD_PRELOAD", "")):
        if os.path.basename(name).startswith("libnccl.so"):
            yield name, "LD_PRELOAD"
    # torch's wheels carry an RPATH to this package, which comes before LD_LIBRARY_PATH.
    for folder in dict.fromkeys(sys.path):
        yield os.path.join(folder, "nvidia/nccl/lib", SONAME), "python package"
    for folder in library_path(plan):
        yield os.path.join(folder, SONAME), "LD_LIBRARY_PATH"
    for path in _cached(SONAME):
        yield path, "system"
    for folder in SYSTEM_FOLDERS:
        yield os.path.join(folder, SONAME), "system"


def library_path(plan: Plan) -> list[str]:
    """An empty entry means the current folder to the loader."""
    value = plan.environment.get("LD_LIBRARY_PATH", "")
    return [folder or "." for folder in re.split("[:;]", value)] if value else []


def net_plugins(plan: Plan) -> tuple[str, ...]:
    """Network plugins (libnccl-net.so, libnccl-net-NAME.so) where the loader looks for them."""
    cached = re.findall(r"=> (\S*/libnccl-net[\w.-]*\.so)$", _loader_cache(), re.MULTILINE)
    found: dict[str, str] = {}
    for path in (*_in(library_path(plan)), *cached, *_in(SYSTEM_FOLDERS)):
        found.setdefault(os.path.realpath(path), path)
    return tuple(found.values())


def _in(folders: Iterable[str]) -> Iterator[str]:
    for folder in folders:
        yield from sorted(glob.glob(os.path.join(glob.escape(folder), "libnccl-net*.so")))


def _cached(name: str) -> list[str]:
    """What the loader's cache gives for a name."""
    return cached_paths(_loader_cache(), name)


@functools.cache
def _loader_cache() -> str:
    """As ldconfig prints it."""
    try:
        return subprocess.run(
            ["/sbin/ldconfig", "-p"], capture_output=True, text=True, errors="replace", check=False
        ).stdout
    except OSError:
        return ""


def cached_paths(shown: str, name: str) -> list[str]:
    """From lines like '  libnccl.so.2 (libc6,x86-64) => /usr/lib64/libnccl.so.2'."""
    entries = (line.strip().partition(" => ") for line in shown.splitlines())
    return [path for left, _, path in entries if path and left.split(" ", 1)[0] == name]


def _version(path: str, real: str) -> str:
    """From the file's full name, else the package's, else the text NCCL prints at its start."""
    if found := re.search(r"\.so\.(\d+\.\d+[\d.]*)$", real):
        return found[1]
    site, in_package, _ = path.rpartition(f"/nvidia/nccl/lib/{SONAME}")
    packages = glob.glob(f"{glob.escape(site)}/nvidia_nccl_cu*.dist-info") if in_package else []
    if packages and (found := re.search(r"-(\d[\d.]*)\.dist-info$", packages[0])):
        return found[1]
    return version_inside(real)


def version_inside(path: str) -> str:
    """'NCCL version 2.29.7+cuda13.2' -> '2.29.7'; '' when the file does not tell."""
    try:
        texts = elf_strings.find_texts(path, "NCCL version ")
    except (OSError, ValueError):
        return ""
    # Others among them are messages: 'NCCL version mismatch with remote peer'.
    versions = (re.match(r"NCCL version (\d+[\d.]*\d)", text) for text in texts)
    return next((found[1] for found in versions if found), "")


def _holds_nccl(path: str) -> bool:
    try:
        return bool(elf_strings.find_words(path, [OWN_NAME]))
    except (OSError, ValueError):
        return False
