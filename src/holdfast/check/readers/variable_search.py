"""Which installed program can read a variable at all: its own text must contain the name."""

from __future__ import annotations

import glob
import importlib.util
import os
import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

from holdfast.analysis.machine import Plan, VariableSearch
from holdfast.check.readers.nccl_libraries import SYSTEM_FOLDERS, library_path, nccl_libraries
from holdfast.check.readers.settings import read_settings
from holdfast.check.readers.software import Torch, find_torch, package_version
from holdfast.system import elf_strings

OWN_TEXT = {
    "NCCL_": ("nccl", "torch gpu", "torch", "torch python"),
    "TORCH_NCCL_": ("torch gpu", "torch", "torch python"),
    "TORCH_GLOO_": ("torch", "torch python"),
    "GLOO_": ("torch", "torch python"),
    "TORCH_FR_": ("torch", "torch python"),
    "TORCH_DISTRIBUTED_": ("torch", "torch python"),
    "TORCHELASTIC_": ("torch", "torch python"),
    "ACCELERATE_": ("accelerate",),
    "DEEPSPEED_": ("deepspeed",),
    "HOROVOD_": ("horovod",),
}
"""the programs that read variables with a prefix: absence from all of them says something

'torch gpu' holds ProcessGroupNCCL, which a CPU build lacks."""
PLUGIN_VARIABLES = ("NCCL_NET_PLUGIN", "NCCL_TUNER_PLUGIN", "NCCL_PROFILER_PLUGIN")
"""a plugin of NCCL may read its own NCCL_ variables"""


class InstalledProgram(NamedTuple):
    part: str
    """one of the names in OWN_TEXT"""
    label: str
    files: tuple[str, ...]


def read_variable_search(
    plan: Plan, root: str = "/", *, also: Collection[str] = ()
) -> VariableSearch:
    """For every variable that is set, and for those of `also`."""
    set_here = {s.name: s.value for s in read_settings(plan, root)}
    names = [name for name in dict.fromkeys([*set_here, *also]) if _prefix(name)]
    if not names:
        return VariableSearch(searched=(), prefixes=(), found={})
    wanted = {part for name in names for part in OWN_TEXT[_prefix(name)]}
    found: dict[str, list[str]] = {name: [] for name in names}
    searched: list[InstalledProgram] = []
    unsearched: set[str] = set()
    for program in _programs(plan, wanted):
        try:
            hits = _search(program, names)
        except (OSError, ValueError):
            unsearched.add(program.part)
            continue
        searched.append(program)
        for name in hits:
            found[name].append(program.label)
    return VariableSearch(
        searched=tuple(p.label for p in searched),
        prefixes=tuple(_proven({p.part for p in searched} - unsearched, set_here)),
        found={name: tuple(labels) for name, labels in found.items()},
    )


def _prefix(name: str) -> str:
    """No prefix here is the beginning of another: each variable has one reader's, or none."""
    return next((prefix for prefix in OWN_TEXT if name.startswith(prefix)), "")


def _proven(parts: Collection[str], set_here: dict[str, str]) -> Iterator[str]:
    named_plugin = any(set_here.get(v, "none") not in ("", "none") for v in PLUGIN_VARIABLES)
    for prefix, readers in OWN_TEXT.items():
        unseen_plugin = prefix == "NCCL_" and named_plugin and "plugin" not in parts
        if all(reader in parts for reader in readers) and not unseen_plugin:
            yield prefix


def _programs(plan: Plan, wanted: Collection[str]) -> Iterator[InstalledProgram]:
    torch = find_torch()
    if torch:
        yield from (p for p in _torch_programs(torch) if p.part in wanted)
    if "nccl" in wanted:
        yield from _nccl_programs(plan, torch.folder if torch else "")
    for package in ("accelerate", "deepspeed", "horovod"):
        spec = importlib.util.find_spec(package) if package in wanted else None
        if spec and spec.origin:
            folder = os.path.dirname(spec.origin)
            label = f"{package} {package_version(package)}".strip()
            yield InstalledProgram(package, label, (*_files(folder, ".py"), *_files(folder, ".so")))


def _nccl_programs(plan: Plan, torch_folder: str) -> Iterator[InstalledProgram]:
    for library in nccl_libraries(plan, torch_folder):
        label = f"{os.path.basename(library.path)} (NCCL {library.version or 'unknown'})"
        yield InstalledProgram("nccl", label, (library.path,))
    for folder in dict.fromkeys([*library_path(plan), *SYSTEM_FOLDERS]):
        for plugin in glob.glob(f"{glob.escape(folder)}/libnccl-*.so"):
            yield InstalledProgram("plugin", os.path.basename(plugin), (plugin,))


def _torch_programs(torch: Torch) -> Iterator[InstalledProgram]:
    names = {
        "torch": ("libtorch_cpu", "libtorch_python", "libc10d*"),
        "torch gpu": ("libtorch_cuda*", "libtorch_hip*"),
        "nccl": ("librccl*",),
    }
    for part, patterns in names.items():
        for pattern in patterns:
            for path in glob.glob(f"{glob.escape(torch.folder)}/lib/{pattern}.so"):
                yield InstalledProgram(
                    part, f"{os.path.basename(path)} (torch {torch.version})", (path,)
                )
    modules = (os.path.join(torch.folder, "distributed"), os.path.join(torch.folder, "nn/parallel"))
    files = tuple(path for folder in modules for path in _files(folder, ".py"))
    if files:
        yield InstalledProgram("torch python", f"torch.distributed (torch {torch.version})", files)


def _files(folder: str, ending: str) -> Iterator[str]:
    for here, _, names in os.walk(folder):
        yield from (os.path.join(here, name) for name in names if name.endswith(ending))


def _search(program: InstalledProgram, names: Collection[str]) -> set[str]:
    found: set[str] = set()
    for path in program.files:
        left = [name for name in names if name not in found]
        if path.endswith(".py"):
            with open(path, "rb") as file:
                found.update(words_in_source(file.read(), left))
        else:
            found.update(elf_strings.find_words(path, left))
    return found


def words_in_source(source: bytes, names: Collection[str]) -> set[str]:
    """Names in Python source, whole or put together from a literal beginning.

    accelerate asks for `prefix + "BACKEND"` with prefix = "ACCELERATE_DYNAMO_": so a literal
    that ends in '_' and is longer than the family's own prefix counts for all its names.
    """
    present = [name for name in names if name.split("_", 1)[0].encode() in source]
    return {n for n in present if _is_whole_word(source, n) or _has_beginning(source, n)}


def _is_whole_word(source: bytes, name: str) -> bool:
    word = name.encode()
    if word not in source:
        return False
    return bool(re.search(rb"(?<![A-Za-z0-9_])" + re.escape(word) + rb"(?![A-Za-z0-9_])", source))


def _has_beginning(source: bytes, name: str) -> bool:
    least = len(_prefix(name))
    cuts = (at + 1 for at, letter in enumerate(name) if letter == "_" and least <= at)
    beginnings = (name[:cut].encode() for cut in cuts)
    return any(b + end in source for b in beginnings for end in (b'"', b"'", b"{"))
