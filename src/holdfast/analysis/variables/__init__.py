"""Which program reads which environment variable, and what its value means."""

from __future__ import annotations

import difflib
import functools

from holdfast.analysis.variables import (
    frameworks,
    launchers,
    nccl,
    nccl_undocumented,
    plugins,
    pytorch,
    runtime,
    schedulers,
    unread,
)
from holdfast.analysis.variables.table import Variable, rows

__all__ = [
    "PREFIXES",
    "READ_FROM",
    "Variable",
    "everything",
    "lookup",
    "near_names",
    "nearest",
    "prefix_of",
    "version_of",
]

READ_FROM = {
    "NCCL_": "NCCL 2.30.7",
    "TORCH_NCCL_": "torch 2.13.0",
    "TORCH_FR_": "torch 2.13.0",
    "TORCH_GLOO_": "torch 2.13.0",
    "TORCH_DISTRIBUTED_": "torch 2.13.0",
    "TORCH_DIST_": "torch 2.13.0",
    "TORCHELASTIC_": "torch 2.13.0",
    "PET_": "torch 2.13.0",
    "GLOO_": "torch 2.13.0",
    "ACCELERATE_": "Accelerate 1.15.0.dev0",
    "DEEPSPEED_": "DeepSpeed 0.19.6",
    "HOROVOD_": "Horovod 0.28.1",
}
"""Per prefix, the version whose names this table holds."""

TABLE_OF = {
    "NCCL": "NCCL 2.30.7",
    **dict.fromkeys(
        (
            "PyTorch",
            "Gloo in PyTorch",
            "torchrun",
            "torch.distributed",
            "your script",
            "torch itself",
        ),
        "torch 2.13.0",
    ),
    "Accelerate": "Accelerate 1.15.0.dev0",
    "DeepSpeed": "DeepSpeed 0.19.6",
    "Horovod": "Horovod 0.28.1",
    "Lightning": "Lightning 2.6.6",
}
"""Per reader, likewise."""

PREFIXES = tuple(READ_FROM)
"""Names that begin so are judged; any other variable is none of our business."""

TABLES = (
    ("NCCL", nccl.TABLE),
    ("NCCL", nccl_undocumented.TABLE),
    ("PyTorch", pytorch.PYTORCH),
    ("Gloo in PyTorch", pytorch.GLOO),
    ("torchrun", pytorch.TORCHRUN),
    ("Accelerate", frameworks.ACCELERATE),
    ("DeepSpeed", frameworks.DEEPSPEED),
    ("Horovod", frameworks.HOROVOD),
    ("NCCL plugins and tests", plugins.PLUGINS),
    ("build tools", plugins.BUILD),
    ("Lightning", launchers.LIGHTNING),
    ("torch.distributed", launchers.ENV_RENDEZVOUS),
    ("your script", launchers.RANKS),
    ("torch itself", runtime.TORCH),
    ("CUDA and its containers", runtime.CUDA),
    ("OpenMP", runtime.OPENMP),
    ("MPI", launchers.MPI),
    ("other networks", runtime.NETWORKS),
    ("Slurm", schedulers.SLURM),
    ("schedulers", schedulers.OTHERS),
    ("nobody", unread.TABLE),
)


@functools.cache
def everything() -> dict[str, Variable]:
    """Every row by name; families under their name with the '*'."""
    return {row.name: row for reader, text in TABLES for row in rows(reader, text)}


def version_of(row: Variable) -> str:
    """What the row was read from; '' where only documentation tells."""
    return TABLE_OF.get(row.reader, "")


def lookup(name: str) -> Variable | None:
    """The row of this variable, or of the family it belongs to."""
    table = everything()
    if name in table:
        return table[name]
    best = max((stem for stem in _families() if name.startswith(stem)), key=len, default=None)
    return None if best is None else table[f"{best}*"]


@functools.cache
def _families() -> tuple[str, ...]:
    return tuple(key[:-1] for key in everything() if key.endswith("*"))


def prefix_of(name: str) -> str:
    """The judged prefix of this name; '' when the name is none of our business."""
    return max((p for p in PREFIXES if name.startswith(p)), key=len, default="")


def nearest(name: str) -> str:
    """The known variable this may be a slip of; '' when none is close."""
    stem = name.strip().upper()
    candidates = _names()
    if stem in candidates:
        return stem
    close = difflib.get_close_matches(stem, candidates, n=1, cutoff=0.85)
    return close[0] if close else ""


def near_names(name: str) -> list[str]:
    """Known variables a person may have meant: close spellings, then names with all its words."""
    stem = name.strip().upper()
    words = {word for word in stem.split("_") if word}
    close = difflib.get_close_matches(stem, _names(), n=5, cutoff=0.7)
    holding = [known for known in _names() if words and words <= set(known.split("_"))]
    return list(dict.fromkeys([*close, *holding]))


def _names() -> list[str]:
    return [row.name for row in everything().values() if row.is_read and row.name[-1] != "*"]
