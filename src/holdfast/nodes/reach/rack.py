"""Which rack or switch a node is behind: by Slurm's topology, else by its name; pure.

'' where neither tells: a wrong guess would send cross-rack pairs the wrong way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_NODE = r"(?:node|host|gpu|srv|n|h|g)"
_PATTERNS = (
    # rack3-node4, dc1-rack03-07, cab2-n1
    re.compile(r"((?:.+[-_])?(?:rack|cabinet|cab)[-_]?\d+)[-_].+"),
    re.compile(rf"((?:.+[-_])?(?:rack|cabinet|cab)\d+){_NODE}\d+"),
    # r12-n03, gpu-r12-node3, r1i0n7 (SGI ICE: rack, unit, node)
    re.compile(rf"((?:.+[-_])?r\d+)[-_]?(?:i\d+)?{_NODE}-?\d+"),
    # x1000c0s0b0n0 (HPE Cray: cabinet, chassis, slot, board, node)
    re.compile(r"(x\d+)c\d+s\d+b\d+n\d+"),
)


def from_slurm(environment: Mapping[str, str]) -> str:
    """The leaf switch (or block) of this node: `top.leaf2.nb` with `switch.switch.node`."""
    kinds = environment.get("SLURM_TOPOLOGY_ADDR_PATTERN", "").split(".")
    parts = environment.get("SLURM_TOPOLOGY_ADDR", "").split(".")
    # a node's name may have dots of its own; it is last
    if len(kinds) < 2 or len(parts) < len(kinds) or kinds[-1] != "node":
        return ""
    return parts[len(kinds) - 2] if kinds[-2] in ("switch", "block") else ""


def from_names(names: Sequence[str]) -> list[str]:
    """The rack in each name, where all names are built in the same way; else '' for each."""
    hosts = [name.partition(".")[0].lower() for name in names]
    for pattern in _PATTERNS:
        found = [pattern.fullmatch(host) for host in hosts]
        racks = [match[1] for match in found if match]
        if len(racks) == len(hosts) and len({re.sub(r"\d+$", "", rack) for rack in racks}) == 1:
            return racks
    return [""] * len(names)
