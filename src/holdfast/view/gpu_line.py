"""One line that says which GPUs a machine has, or the nodes of a job have."""

from __future__ import annotations

from collections import Counter, defaultdict

from holdfast.analysis.machine import MachineFacts, NvidiaFacts, RocmFacts, Unread
from holdfast.analysis.nodes import NodesFacts
from holdfast.text import counted, names, numbers, plural, size
from holdfast.view.text import harmless

NONE, NOT_READ = "GPUs: none seen", "GPUs: not read"


def describe(facts: MachineFacts) -> str:
    """'GPUs: 8 × NVIDIA H200 (140 GiB), driver 580.105.08 (CUDA 13.0)'; '' where there is no sign
    of any, or they were not asked for."""
    kinds = []
    if isinstance(facts.nvidia, NvidiaFacts) and facts.nvidia.present:
        kinds.append(_nvidia(facts.nvidia))
    elif isinstance(facts.nvidia, NvidiaFacts) and facts.nvidia.module:
        version = facts.nvidia.module
        kinds.append(f"none here, though NVIDIA's driver {version} is loaded on this machine")
    if isinstance(facts.rocm, RocmFacts) and facts.rocm.gpus:
        driver = f", amdgpu {facts.rocm.driver}" if facts.rocm.driver else ""
        kinds.append(f"{_counted(facts.rocm.gpus)}{driver} (seen by the kernel's files only)")
    return f"GPUs: {harmless('; '.join(kinds))}" if kinds else ""


def of_nodes(facts: NodesFacts) -> str:
    """The same for several: one line where all have the same, else one for each kind, with the
    nodes that have it."""
    kinds: defaultdict[str, list[str]] = defaultdict(list)
    for node in facts.nodes:
        gap = NOT_READ if isinstance(node.facts.nvidia, Unread) else NONE
        kinds[describe(node.facts) or gap].append(node.name)
    if kinds.keys() <= {NONE, NOT_READ}:
        return ""
    if len(kinds) == 1:
        return f"{next(iter(kinds))}, on each node"
    fewest_last = sorted(kinds.items(), key=lambda kind: -len(kind[1]))
    return "\n".join(f"{kind}: {harmless(names(nodes))}" for kind, nodes in fewest_last)


def _nvidia(seen: NvidiaFacts) -> str:
    version = seen.module or seen.library
    driver = f"NVIDIA driver {version}".rstrip()
    if seen.error:
        return f"{driver} does not work: {seen.error}"
    readable = [gpu for gpu in seen.gpus if not gpu.unread]
    cards = [
        f"{gpu.name} ({size(gpu.memory_total)})" if gpu.memory_total else gpu.name
        for gpu in readable
    ]
    parts = [_counted(cards)] if cards else []
    if instances := sum(len(gpu.mig_devices or ()) for gpu in readable):
        parts.append(counted(instances, "MIG instance"))
    if unread := [gpu.index for gpu in seen.gpus if gpu.unread]:
        parts.append(f"{plural(unread, 'GPU', 'GPUs')} {numbers(unread)} not readable")
    cuda = f" (CUDA {seen.cuda})" if seen.cuda else ""
    return f"{', '.join(parts) or 'none'}, driver {version}{cuda}"


def _counted(cards: list[str] | tuple[str, ...]) -> str:
    return " + ".join(f"{count} × {name}" for name, count in Counter(cards).items())
