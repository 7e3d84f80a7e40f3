"""A few files import torch, named here; all else works where torch is missing or broken."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "holdfast"
MAY_IMPORT_TORCH = {
    "check/smoke/rank.py",
    "check/nodes/smoke/rank.py",
    "rank/init.py",
    *(f"checkpoint/{name}.py" for name in ("copying", "ddp_buckets", "generators")),
    *(
        f"checkpoint/{name}.py"
        for name in ("loading", "gpu_fills", "optimizer_state", "shared_memory")
    ),
    *(f"checkpoint/{name}.py" for name in ("hyperparameters", "ranks/contents")),
    *(f"checkpoint/{name}.py" for name in ("object_state", "rank_files", "staging", "state")),
    *(f"checkpoint/{name}.py" for name in ("sharded", "sharded_tree", "dtensor_layout", "tensors")),
    *(f"checkpoint/reading/{name}.py" for name in ("fill", "load", "saved_state", "difference")),
    *(f"checkpoint/exchange/{name}.py" for name in ("dcp_metadata", "sources", "to_dcp")),
    *(f"run/launch/{name}.py" for name in ("agent", "flags", "launch", "logs", "rendezvous")),
}


def imported_packages(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return {name.partition(".")[0] for name in names}


def test_torch_is_imported_in_these_files_only() -> None:
    files = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if "torch" in imported_packages(path)
    }
    assert files == MAY_IMPORT_TORCH


def test_the_rank_needs_nothing_but_torch_and_the_standard_library() -> None:
    """It must start wherever torch does, msgspec or psutil or not."""
    for name in ("rank.py", "stages.py", "__init__.py"):
        assert imported_packages(SOURCE / "check" / "smoke" / name).isdisjoint(
            {"msgspec", "psutil"}
        )
