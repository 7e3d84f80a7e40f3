"""GPUs of several nodes compared: kind, links, memory protection, limits. Their number is compared
by device-ordinal, where it matters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from holdfast import text
from holdfast.analysis.machine import Gpu, Unread, visible_gpus
from holdfast.analysis.nodes import differences
from holdfast.analysis.nodes.differences import Difference, Gap
from holdfast.analysis.nodes.facts import Node, NodesFacts

OfNodes = Mapping[str, Sequence[Gpu]]


class GpuDifference(NamedTuple):
    what: str
    """'the kind of GPU'"""
    meaning: str
    remedy: str
    grave: bool
    difference: Difference

    @property
    def odd(self) -> tuple[str, ...]:
        return self.difference.odd

    @property
    def listed(self) -> str:
        usual = self.difference.usual
        if usual is None:
            return self.difference.listed
        has = text.names(self.difference.values[node] for node in self.odd)
        verb = text.plural(self.odd, "has", "have")
        return f"{text.names(self.odd)} {verb} {has}, the others {usual}"

    @property
    def odd_first(self) -> list[tuple[str, str]]:
        values = self.difference.values.items()
        return sorted(values, key=lambda item: (item[0] not in self.odd, item[0]))


def gpus_of_each(facts: NodesFacts) -> tuple[dict[str, tuple[Gpu, ...]], list[Gap]]:
    """Nodes with GPUs that could be read; nodes without any are not compared."""
    found, gaps = differences.of_each(facts, _readable)
    return {node: gpus for node, gpus in found.items() if gpus}, gaps


def _readable(node: Node) -> tuple[Gpu, ...] | Unread:
    nvidia = node.facts.nvidia
    if isinstance(nvidia, Unread):
        return nvidia
    if nvidia.present and nvidia.error:
        return Unread(why=f"the NVIDIA driver could not be asked: {nvidia.error}")
    return tuple(gpu for gpu in nvidia.gpus if not gpu.unread)


def usable_gpus(node: Node) -> int | Unread:
    """How many devices a rank started there can select: by the driver, without GPUs that are lost,
    or by the device nodes where the driver was not asked."""
    nvidia, settings = node.facts.nvidia, node.facts.settings
    if isinstance(nvidia, Unread) or isinstance(settings, Unread) or not nvidia.gpus:
        devices = node.facts.accelerators
        return devices if isinstance(devices, Unread) else len(devices)
    seen = visible_gpus.seen_by_job(node.facts)
    if seen.devices is None:
        return Unread(why="its MIG instances could not be listed")
    gone = {gpu.index for gpu in nvidia.gpus if gpu.unread_kind in ("lost", "reset required")}
    return sum(device.gpu not in gone for device in seen.devices)


def kinds(nodes: OfNodes) -> dict[str, str]:
    """'NVIDIA H100 80GB HBM3', or '4 x NVIDIA A100 and 4 x NVIDIA T4' where they are mixed."""
    return {node: _common(gpus, lambda gpu: gpu.name or "unnamed") for node, gpus in nodes.items()}


class _Question(NamedTuple):
    what: str
    ask: Callable[[Gpu], str]
    meaning: str
    remedy: str
    grave: bool


_SLOWEST = "every rank waits for the slowest GPU of the job"
_QUESTIONS = (
    _Question(
        "memory of its GPUs",
        lambda gpu: text.size(gpu.memory_total) if gpu.memory_total else "",
        "a batch that fits on the larger GPUs runs out of memory on the smaller ones",
        "use nodes of one kind, or a batch that fits on the smallest",
        grave=True,
    ),
    _Question(
        "number of NVLinks up",
        lambda gpu: str(sum(link.active for link in gpu.nvlinks)) if not gpu.mig else "",
        "a node with fewer links is slower in every collective, and the others wait for it",
        "see which are down: `nvidia-smi nvlink -s` there",
        grave=True,
    ),
    _Question(
        "power limit",
        lambda gpu: f"{gpu.power_limit:.0f} W" if gpu.power_limit else "",
        f"a GPU with a lower limit clocks lower under load; {_SLOWEST}",
        "make it equal: `sudo nvidia-smi -pl WATTS` on the odd node",
        grave=True,
    ),
    _Question(
        "highest clock",
        lambda gpu: f"{gpu.sm_clock_possible} MHz" if gpu.sm_clock_possible else "",
        _SLOWEST,
        "compare `nvidia-smi -q -d CLOCK` on these nodes",
        grave=True,
    ),
    _Question(
        "ECC mode",
        lambda gpu: "" if gpu.ecc_enabled is None else "on" if gpu.ecc_enabled else "off",
        "without ECC a flipped bit is neither corrected nor noticed; with it some cards have less "
        "memory",
        "make it equal: `sudo nvidia-smi -e 1` on the odd node, then a reboot",
        grave=False,
    ),
    _Question(
        "MIG mode",
        lambda gpu: "" if gpu.mig is None else "on" if gpu.mig else "off",
        "a GPU cut into MIG instances is not usable as a whole, and NCCL has no peer access there",
        "make it equal: `sudo nvidia-smi -mig 0` on the odd node",
        grave=True,
    ),
)


def differences_between(nodes: OfNodes) -> list[GpuDifference]:
    unlike = differences.compare(kinds(nodes))
    if unlike is not None:
        return [
            GpuDifference(
                what="the kind of GPU",
                meaning=f"{_SLOWEST}, and memory sizes and links differ too",
                remedy="leave the odd node out, or start the job on nodes of one kind",
                grave=True,
                difference=unlike,
            )
        ]  # then everything else differs for that reason
    found = []
    for question in _QUESTIONS:
        values = {node: _common(gpus, question.ask) for node, gpus in nodes.items()}
        told = {node: value for node, value in values.items() if value}
        unequal = differences.compare(told)
        if unequal is not None:
            found.append(
                GpuDifference(
                    question.what, question.meaning, question.remedy, question.grave, unequal
                )
            )
    return found


def _common(gpus: Sequence[Gpu], ask: Callable[[Gpu], str]) -> str:
    """The one value of all GPUs of a node, or how many have which; '' where none tells."""
    counts = Counter(value for gpu in gpus if (value := ask(gpu)))
    if len(counts) < 2:
        return next(iter(counts), "")
    return " and ".join(f"{count} x {value}" for value, count in counts.most_common())
