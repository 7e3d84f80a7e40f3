"""holdfast's tables of torch's variables, options, recorder and texts, compared with a torch."""

from __future__ import annotations

import ast
import mmap
import re
from collections.abc import Iterator
from pathlib import Path

from holdfast.analysis.collectives import dump_file
from holdfast.analysis.variables.table import Variable, tables
from holdfast.analysis.versions import release
from holdfast.lint.readers import launch_options
from tools import wordings

READERS = ("PyTorch", "Gloo in PyTorch", "torchrun", "torch itself")
PREFIXES = tuple(p for p in tables().version_of_prefix if p.startswith(("TORCH", "GLOO_")))
NAME = re.compile(rb"(?<=[\"'\0])((?:%s)[A-Z0-9_]+)(?=[\"'\0])" % "|".join(PREFIXES).encode())
LIBRARIES = ("libc10.so", "libtorch_cpu.so", "libtorch_python.so", "libtorch_cuda.so")
RECORDER = Path("include/torch/csrc/distributed/c10d/FlightRecorder.hpp")
NO_OPTIONS = frozenset({"help", "nproc-per-node"})
"""have spellings of their own in the table"""


def differences(folder: Path) -> tuple[str, list[str]]:
    """Its version, and a sentence for everything that differs. Raises ValueError for no torch."""
    named = folder / "version.py"
    if not named.exists():
        raise ValueError("it has no version.py: give the folder `torch` itself")
    told = re.search(r"__version__ = '([^']+)'", named.read_text("utf-8"))
    version = told[1] if told else ""
    python = [p.read_bytes() for p in sorted((folder / "distributed").rglob("*.py"))]
    others = [p.read_bytes() for p in _other_python(folder)]
    libraries = {name: _mapped(folder / "lib" / name) for name in LIBRARIES}
    held = [*python, *others, *libraries.values()]
    found = [*_variables(version, held), *_options(folder, version), *_recorder(folder)]
    found += wordings.missing("python", version, python)
    found += wordings.missing("cpu", version, [libraries["libtorch_cpu.so"]])
    if libraries["libtorch_cuda.so"]:  # a build for the CPU has none
        found += wordings.missing("cuda", version, [libraries["libtorch_cuda.so"]])
    return version, found


def _other_python(folder: Path) -> Iterator[Path]:
    for part in ("", "_logging", "compiler", "cuda", "utils"):
        yield from sorted((folder / part).glob("*.py"))


def _mapped(path: Path) -> bytes:
    if not path.exists() or not path.stat().st_size:
        return b""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content[:]


def _variables(version: str, held: list[bytes]) -> Iterator[str]:
    known = {row.name for row in tables().rows}
    families = tuple(name[:-1] for name in known if name.endswith("*"))
    read = {found.decode() for content in held for found in NAME.findall(content)}
    for name in sorted(read - known):
        if not name.startswith(families):
            yield f"variable {name} is in torch, and not in the table"
    gpu = any(b"ProcessGroupNCCL watchdog thread" in content for content in held)
    for row in tables().rows:
        if _is_of(row, version, gpu=gpu) and not any(row.name.encode() in c for c in held):
            yield f"variable {row.name} is in the table, and not in torch"


def _is_of(row: Variable, version: str, *, gpu: bool) -> bool:
    """Whether this torch should hold the name. torchrun composes the names of its options."""
    composed = row.name.startswith("PET_") or row.name[-1] == "*" or row.obsolete
    only_gpu = "nccl" in row.source.lower() or "FlightRecorder" in row.source
    return (
        row.reader in READERS
        and not composed
        and (gpu or not only_gpu)
        and release(row.since) <= release(version)
        and (not row.until or release(version) <= release(row.until))
    )


def _options(folder: Path, version: str) -> Iterator[str]:
    tree = ast.parse((folder / "distributed" / "run.py").read_text("utf-8"))
    read = {
        word.value[2:].replace("_", "-")
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "add_argument"
        for word in call.args
        if isinstance(word, ast.Constant) and isinstance(word.value, str) and word.value[:2] == "--"
    }
    table = launch_options.TORCHRUN
    for name in sorted(read - set(table.names)):
        yield f"torchrun --{name} is not in the table of options"
    newest = tables().version_of_reader["torchrun"].rpartition(" ")[2]
    if release(version)[:2] >= release(newest)[:2]:
        # `use-env` is an option of torch.distributed.launch, which the table has under this name.
        for name in sorted(set(table.names) - read - NO_OPTIONS - {"use-env"}):
            yield f"torchrun --{name} is in the table of options, and not in torch"


def _recorder(folder: Path) -> Iterator[str]:
    header = folder / RECORDER
    if not header.exists():
        return
    told = re.search(r'DEFINE_CONSTANT\(version_val, "([^"]+)"\)', header.read_text("utf-8"))
    if told and told[1] != dump_file.FORMAT:
        yield (
            f"the flight recorder writes format {told[1]}, read as {dump_file.FORMAT}: compare "
            "FlightRecorderDetail.hpp with analysis/collectives/entries.py"
        )
