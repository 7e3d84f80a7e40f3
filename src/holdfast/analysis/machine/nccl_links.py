"""Which transport NCCL chose between two ranks, from its own words at NCCL_DEBUG=INFO. Pure.

    node0:812:812 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read
    node0:812:812 [0] NCCL INFO Channel 02 : 0[0] -> 1[1] via SHM/direct/direct
    node0:812:812 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/3(1)/GDRDMA/Shared

Written from NVIDIA/nccl: src/transport/{p2p,shm,net}.cc. The name of a network plugin may hold
spaces (`NET/AWS Libfabric/0`); older versions print a bus id in brackets, newer ones a number.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from holdfast import text
from holdfast.analysis.machine.fact import Fact

CHANNEL = re.compile(
    r"NCCL INFO (?:Channel|Ring) \d+(?:/\d+)? : (?P<sender>\d+)\[[^\]]{1,20}\] -> "
    r"(?P<receiver>\d+)\[[^\]]{1,20}\] (?:\[(?:send|receive)\] )?"
    r"via (?P<transport>P2P|SHM|NET)/(?P<way>.{1,80}?)\s*$"
)
_NET = re.compile(r"(?P<name>.+?)/(?P<device>\d+)(?:\(\d+\))?(?P<direct>/GDRDMA)?")


class NcclLink(Fact, frozen=True):
    """A direction between two ranks, and how NCCL sends there."""

    sender: int
    receiver: int
    transport: str
    """'P2P' (GPU to GPU), 'SHM' (through the host's memory) or 'NET'"""
    way: str
    """'CUMEM', 'IPC', 'MNNVL', 'direct pointer', 'indirect'; the network: 'IB', 'Socket'…"""
    device: int | None = None
    """which card, by NCCL's own numbers; of NET only"""
    gpu_direct: bool = False
    """the card reads and writes GPU memory by itself; of NET only"""

    @property
    def name(self) -> str:
        return self.transport if self.transport == "SHM" else f"{self.transport}/{self.way}"


def read_links(lines: Iterable[str]) -> tuple[NcclLink, ...]:
    """Each link once, however many channels it has."""
    found = (CHANNEL.search(line) for line in lines)
    return tuple(dict.fromkeys(_link(match) for match in found if match))


def _link(match: re.Match[str]) -> NcclLink:
    way, device, direct = match["way"], None, False
    net = _NET.match(way) if match["transport"] == "NET" else None
    if net:
        way, device, direct = net["name"], int(net["device"]), bool(net["direct"])
    else:
        way = way.split("/")[0]
    return NcclLink(
        sender=int(match["sender"]),
        receiver=int(match["receiver"]),
        transport=match["transport"],
        way=way,
        device=device,
        gpu_direct=direct,
    )


def transports(links: Iterable[NcclLink]) -> frozenset[str]:
    return frozenset(link.transport for link in links)


def in_words(links: Sequence[NcclLink]) -> str:
    """'P2P/CUMEM between 28 pairs', 'NET/IB with GPUDirect between 4 pairs (cards 0-3)'."""
    if not links:
        return "NCCL did not say which transport it used"
    pairs = Counter(
        (name, direct)
        for name, direct, _ in {
            (link.name, link.gpu_direct, frozenset((link.sender, link.receiver))) for link in links
        }
    )
    return ", ".join(
        f"{name}{' with GPUDirect' if direct else ''} between {text.counted(count, 'pair')}"
        f"{_cards(links, name, direct=direct)}"
        for (name, direct), count in sorted(pairs.items())
    )


def _cards(links: Iterable[NcclLink], name: str, *, direct: bool) -> str:
    used = {
        link.device
        for link in links
        if link.device is not None and (link.name, link.gpu_direct) == (name, direct)
    }
    if not used:
        return ""
    return f" ({text.plural(used, 'card', 'cards')} {text.numbers(used)})"
