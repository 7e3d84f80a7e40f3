"""Which address (GID) NCCL takes of a RoCE port.

Read from NVIDIA/nccl src/transport/net_ib/connect.cc (net_ib.cc before 2.29), tags 2.18 to 2.30.7:
NCCL_IB_GID_INDEX where it is set; else, before 2.21, entry 0; from 2.21 on the first of the wanted
family (NCCL_IB_ADDR_FAMILY, IPv4 by default), range (NCCL_IB_ADDR_RANGE) and RoCE version
(NCCL_IB_ROCE_VERSION_NUM, 2 by default). When nothing fits it stays with entry 0, which is a
link-local address and does not leave its network segment. InfiniBand does not choose: entry 0.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.analysis.machine import Gid, MachineFacts, Software
from holdfast.analysis.nccl_numbers import nccl_int
from holdfast.analysis.versions import release

INDEX, FAMILY, RANGE = "NCCL_IB_GID_INDEX", "NCCL_IB_ADDR_FAMILY", "NCCL_IB_ADDR_RANGE"
VERSION = "NCCL_IB_ROCE_VERSION_NUM"
CHOOSES_SINCE = (2, 21)
SKIPS_FOREIGN_SINCE = (2, 26, 2)
"""from here on a GID of another network namespace is skipped; before, NCCL ends with an error"""

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class GidSettings(NamedTuple):
    version: str = ""
    """of NCCL; '' when unknown: the newest rules are assumed"""
    forced: int | None = None
    ipv6: bool = False
    within: Network | None = None
    roce: int = 2

    @property
    def chooses(self) -> bool:
        return (release(self.version) or CHOOSES_SINCE) >= CHOOSES_SINCE

    @property
    def fails_on_foreign(self) -> bool:
        """Not claimed where the version is unknown."""
        found = release(self.version)
        return bool(found) and CHOOSES_SINCE <= found < SKIPS_FOREIGN_SINCE


def settings_of(facts: MachineFacts) -> GidSettings:
    def value(name: str) -> str:
        setting = facts.setting(name)
        return setting.value if setting else ""

    software = facts.software
    libraries = software.nccl if isinstance(software, Software) else ()
    index = nccl_int(value(INDEX)) if value(INDEX) else -1
    return GidSettings(
        version=libraries[0].version if libraries else "",
        forced=index if index >= 0 else None,
        ipv6=value(FAMILY) == "AF_INET6",
        within=_network(value(RANGE)),
        roce=nccl_int(value(VERSION)) if value(VERSION) else 2,
    )


def _network(value: str) -> Network | None:
    """NCCL ignores a range that it does not understand."""
    try:
        return ipaddress.ip_network(value, strict=False) if "/" in value else None
    except ValueError:
        return None


def choose(gids: Sequence[Gid], settings: GidSettings) -> Gid | None:
    """None where it is an entry of the table that is empty."""
    by_index = {gid.index: gid for gid in gids}
    if settings.forced is not None:
        return by_index.get(settings.forced)
    chosen = by_index.get(0)
    if not settings.chooses:
        return chosen
    for gid in gids:
        if gid.index and _is_better(gid, chosen, settings):
            chosen = gid
    return chosen


def _is_better(gid: Gid, chosen: Gid | None, settings: GidSettings) -> bool:
    """NCCL's ncclUpdateGidIndex."""
    if is_ipv6(gid) != settings.ipv6 or not _is_within(gid, settings.within):
        return False
    if (chosen is None or is_ipv6(chosen)) != settings.ipv6:
        return True
    usable = chosen is not None and not is_link_local(chosen)
    before = roce_version(chosen) if chosen is not None else 0
    other = roce_version(gid) != before or not usable
    return not is_link_local(gid) and other and roce_version(gid) == settings.roce


def foreign(gids: Sequence[Gid], settings: GidSettings) -> list[Gid]:
    """Those whose type NCCL would ask for, and that belong to another network namespace."""
    return [
        gid
        for gid in gids
        if not gid.kind and not is_link_local(gid) and is_ipv6(gid) == settings.ipv6
    ]


def address(gid: Gid) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    found = ipaddress.IPv6Address(gid.gid)
    return found.ipv4_mapped or found


def is_ipv6(gid: Gid) -> bool:
    return address(gid).version == 6


def is_link_local(gid: Gid) -> bool:
    """fe80::/64, as NCCL judges."""
    return gid.gid.startswith("fe80:0000:0000:0000:")


def roce_version(gid: Gid) -> int:
    return {"IB/RoCE v1": 1, "RoCE v1": 1, "RoCE v2": 2}.get(gid.kind, 0)


def _is_within(gid: Gid, wanted: Network | None) -> bool:
    found = address(gid)
    return wanted is None or (found.version == wanted.version and found in wanted)
