"""How fast each kind of link can be, in bytes a second in one direction. Pure.

The figures are those that NCCL itself reckons with, which are what its collectives reach at best:
the protocols of the links take a fifth of what is printed on the box. From NVIDIA/nccl:
src/graph/topo.h (SM60_NVLINK_BW … SM100_NVLINK_BW) and src/graph/topo.cc (kvDictPciGen); that an
all_reduce of 8 H100s measures 370 GB/s by rings, and 480 with NVLink SHARP, is NVIDIA's own answer
in https://github.com/NVIDIA/nccl-tests/issues/212.
"""

from __future__ import annotations

import re

from holdfast.analysis.machine.gpu import Gpu, PcieLink

GB = 1e9
NVLINK = {"pascal": 18.0, "volta": 20.0, "ampere": 20.0, "hopper": 20.6, "blackwell": 40.1}
"""GB/s of one link, by the architecture that NVML names"""
AMPERE_BRIDGE = 12.0
"""of the workstation cards (sm_86), which have at most four links; an A100 has twelve"""
MOST_BRIDGE_LINKS = 4
PCIE_LANE = {1: 15, 2: 30, 3: 60, 4: 120, 5: 240, 6: 480}
"""units of 100 Mb/s, by generation"""
BOARDS = (
    (re.compile(r"\bA100-SXM"), 12 * 20.0),
    (re.compile(r"\bH100 (?:80|96)GB HBM3|\bH200$"), 18 * 20.6),
    (re.compile(r"\bG?B[23]00\b(?! NVL)"), 18 * 40.1),
)
"""GPUs whose links all go to NVSwitch, or to the other three of their board -> GB/s of them all"""


def nvlink_speed(gpu: Gpu, links: int) -> float | None:
    """Of so many links of this GPU together; None where the architecture is not known."""
    each = NVLINK.get(gpu.architecture)
    if gpu.architecture == "ampere" and len(gpu.nvlinks) <= MOST_BRIDGE_LINKS:
        each = AMPERE_BRIDGE
    return links * each * GB if each else None


def pcie_speed(link: PcieLink) -> float | None:
    """With the lanes that it has now; an idle GPU lowers the generation to save power, and raises
    it once data flows."""
    lane = PCIE_LANE.get(link.generation_possible)
    return link.width * lane / 80 * GB if lane else None


def board_speed(name: str) -> float | None:
    """Of all NVLinks of a GPU, by its product name; None where the name does not tell."""
    return next((speed * GB for pattern, speed in BOARDS if pattern.search(name)), None)


def rdma_speed(gigabits: float) -> float:
    return gigabits / 8 * GB
