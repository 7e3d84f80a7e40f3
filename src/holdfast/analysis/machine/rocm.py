"""What holdfast sees of AMD's GPUs, and what it does not: said where they are."""

from __future__ import annotations

from collections import Counter

from holdfast.analysis.machine.fact import Unread
from holdfast.analysis.machine.gpu import RocmFacts
from holdfast.text import counted

NOT_SEEN = "which processes hold their memory, xGMI links, clocks, temperatures and what RCCL uses"


def statement(rocm: RocmFacts | Unread) -> str:
    """'' where there is no AMD GPU, or none could be looked for."""
    if isinstance(rocm, Unread) or not rocm.gpus:
        return ""
    kinds = Counter(rocm.gpus)
    models = ", ".join(
        f"{number} x {name}" if number > 1 else name for name, number in kinds.items()
    )
    driver = f", amdgpu {rocm.driver}" if rocm.driver else ""
    return (
        f"{counted(len(rocm.gpus), 'AMD GPU')} ({models}{driver}). Seen by what the kernel shows: "
        f"model, memory in use, uncorrectable memory errors. Not seen: {NOT_SEEN}; `amd-smi` shows "
        "them"
    )
