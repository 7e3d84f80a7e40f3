"""What NCCL's smoke test measured, beside what the links between its GPUs can do. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from holdfast.analysis.machine.gpu import Gpu
from holdfast.analysis.machine.job import Smoke, SmokePair, SmokeRung
from holdfast.analysis.machine.link_speeds import nvlink_speed, pcie_speed
from holdfast.analysis.machine.nccl_links import NcclLink
from holdfast.analysis.machine.pci import PciFacts
from holdfast.analysis.machine.topology import nvlinks_between, pcie_distance

SLOW_FACTOR = 2.0
"""slower than the median of its kind by this is slow"""
FEWEST_PAIRS = 3
"""of one kind, for a median to mean anything"""
NVLINK_SHARE = 1 / 3
"""of the table below which NVLink is slow. Two bridged H100 PCIe measure 0.47 of it and are healthy
(NVIDIA/nccl issue 1161); a group that fell back to PCIe or host memory is below 0.1"""
PCIE_SHARE = 1 / 8
"""of the table below which PCIe is slow: eight cards that share two sockets are healthy at a
quarter of it (NVIDIA/nccl-tests issues 270 and 307)"""
TELLING_BYTES = 256 << 20
TELLING_SECONDS = 0.005
"""an all_reduce that is large enough, or takes long enough, for its start not to count"""


class Expected(NamedTuple):
    speed: float
    """bytes a second"""
    share: float
    """of it below which something is wrong"""
    kind: str
    """'18 NVLinks', 'PCIe 4.0 x16'"""


class SlowPair(NamedTuple):
    pair: SmokePair
    kind: str
    """'NV18', 'PIX'…"""
    median: float
    of: int
    """pairs of this kind"""


def telling_rung(smoke: Smoke) -> SmokeRung | None:
    """The largest all_reduce over NCCL, where it says something about the links."""
    top = smoke.top_rung("nccl")
    if top is None:
        return None
    return top if top.size >= TELLING_BYTES or top.seconds >= TELLING_SECONDS else None


def expected(gpus: Mapping[int, Gpu], links: Iterable[NcclLink]) -> Expected | None:
    """What NCCL reckons with for a ring over these ranks; None where something is not known.
    The ring is as fast as its slowest hop: one hop over PCIe, and all are."""
    pairs = {(link.sender, link.receiver) for link in links}
    if not pairs or any(rank not in gpus for pair in pairs for rank in pair):
        return None
    direct = all(link.transport == "P2P" for link in links)
    if direct and all(nvlinks_between(gpus[one], gpus[other]) for one, other in pairs):
        found = [_by_nvlink(rank, gpus) for rank in gpus]
    else:
        found = [_by_pcie(gpu) for gpu in gpus.values()]
    known = [one for one in found if one is not None]
    return min(known) if len(known) == len(gpus) else None


def _by_nvlink(rank: int, gpus: Mapping[int, Gpu]) -> Expected | None:
    """All its links to NVSwitch; or those to the other GPUs of the group, which may not be all."""
    gpu = gpus[rank]
    switched = sum(link.active and link.remote == "switch" for link in gpu.nvlinks)
    between = sum(nvlinks_between(gpu, other) for one, other in gpus.items() if one != rank)
    links = switched or between
    speed = nvlink_speed(gpu, links)
    return Expected(speed, NVLINK_SHARE, f"{links} NVLinks") if speed else None


def _by_pcie(gpu: Gpu) -> Expected | None:
    speed = pcie_speed(gpu.pcie) if gpu.pcie else None
    if speed is None or gpu.pcie is None:
        return None
    return Expected(speed, PCIE_SHARE, f"PCIe {gpu.pcie.generation_possible}.0 x{gpu.pcie.width}")


def distance(one: Gpu, other: Gpu, pci: PciFacts | None) -> str:
    """'NV18', 'PIX'… as `nvidia-smi topo -m` calls it; '' where it is not known."""
    if links := nvlinks_between(one, other):
        return f"NV{links}"
    devices = {device.bus_id: device for device in pci.devices} if pci else {}
    first, second = devices.get(one.bus_id), devices.get(other.bus_id)
    return pcie_distance(first, second) if first and second else ""


def slow_pairs(smoke: Smoke, gpus: Mapping[int, Gpu], pci: PciFacts | None) -> list[SlowPair]:
    """Pairs that take twice as long as the median of those with the same kind of link. Of two
    middle ones the faster: among four GPUs a bad one slows half of all pairs."""
    kinds: dict[str, list[SmokePair]] = {}
    for pair in smoke.pairs:
        if pair.first in gpus and pair.second in gpus:
            kind = distance(gpus[pair.first], gpus[pair.second], pci)
            kinds.setdefault(kind, []).append(pair)
    found = []
    for kind, pairs in kinds.items():
        if not kind or len(pairs) < FEWEST_PAIRS:
            continue
        median = statistics.median_high(pair.bandwidth for pair in pairs)
        found += [
            SlowPair(pair, kind, median, len(pairs))
            for pair in pairs
            if pair.bandwidth * SLOW_FACTOR < median
        ]
    return found


def odd_ranks(slow: Iterable[SlowPair], smoke: Smoke) -> list[int]:
    """Ranks that are slow with every other rank, while those are fast among themselves."""
    ends = [{one.pair.first, one.pair.second} for one in slow]
    tried = [{pair.first, pair.second} for pair in smoke.pairs]
    return [
        rank
        for rank in range(smoke.world)
        if (mine := sum(rank in pair for pair in tried)) >= FEWEST_PAIRS - 1
        and sum(rank in pair for pair in ends) == mine
    ]
