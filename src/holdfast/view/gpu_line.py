"""One line that says which GPUs a machine has."""

from __future__ import annotations

from collections import Counter

from holdfast.analysis.machine import MachineFacts, NvidiaFacts, RocmFacts
from holdfast.text import counted, numbers, plural, size
from holdfast.view.text import harmless


def describe(facts: MachineFacts) -> str:
    """'GPUs: 8 × NVIDIA H200 (140 GiB), driver 580.105.08 (CUDA 13.0)'; '' where there is no sign
    of any, or they were not asked for."""
    kinds = []
    if isinstance(facts.nvidia, NvidiaFacts) and facts.nvidia.present:
        kinds.append(_nvidia(facts.nvidia))
    if isinstance(facts.rocm, RocmFacts) and facts.rocm.gpus:
        driver = f", amdgpu {facts.rocm.driver}" if facts.rocm.driver else ""
        kinds.append(f"{_counted(facts.rocm.gpus)}{driver} (seen by the kernel's files only)")
    return f"GPUs: {harmless('; '.join(kinds))}" if kinds else ""


def _nvidia(seen: NvidiaFacts) -> str:
    version = seen.module or seen.library
    driver = f"NVIDIA driver {version}".rstrip()
    if seen.error:
        return f"{driver} does not work: {seen.error}"
    readable = [gpu for gpu in seen.gpus if not gpu.unread]
    names = [
        f"{gpu.name} ({size(gpu.memory_total)})" if gpu.memory_total else gpu.name
        for gpu in readable
    ]
    parts = [_counted(names)] if names else []
    if instances := sum(len(gpu.mig_devices or ()) for gpu in readable):
        parts.append(counted(instances, "MIG instance"))
    if unread := [gpu.index for gpu in seen.gpus if gpu.unread]:
        parts.append(f"{plural(unread, 'GPU', 'GPUs')} {numbers(unread)} not readable")
    cuda = f" (CUDA {seen.cuda})" if seen.cuda else ""
    return f"{', '.join(parts) or 'none'}, driver {version}{cuda}"


def _counted(names: list[str] | tuple[str, ...]) -> str:
    return " + ".join(f"{count} × {name}" for name, count in Counter(names).items())
