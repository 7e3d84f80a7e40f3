from __future__ import annotations

import pytest

from holdfast.analysis.machine import NcclLink
from holdfast.analysis.machine.nccl_links import in_words, read_links, transports

P = "vm:600:600 [0] NCCL INFO "
"""before every line; those marked 'real' were printed by NCCL 2.28.9 on an H200"""


@pytest.mark.parametrize(
    ("line", "link"),
    [
        (
            "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read",
            NcclLink(sender=0, receiver=1, transport="P2P", way="CUMEM"),
        ),
        (
            "Channel 03/1 : 7[7] -> 2[2] via P2P/IPC/read/CE",
            NcclLink(sender=7, receiver=2, transport="P2P", way="IPC"),
        ),
        (
            "Channel 00/0 : 0[3d000] -> 1[3e000] via P2P/direct pointer",
            NcclLink(sender=0, receiver=1, transport="P2P", way="direct pointer"),
        ),
        (
            "Channel 00/0 : 0[0] -> 3[3] via P2P/indirect/2[2]",
            NcclLink(sender=0, receiver=3, transport="P2P", way="indirect"),
        ),
        (
            "Channel 02 : 1[1] -> 0[0] via SHM/direct/direct",
            NcclLink(sender=1, receiver=0, transport="SHM", way="direct"),
        ),
        (  # real
            "Channel 01/0 : 2[0] -> 0[0] [receive] via NET/Socket/0",
            NcclLink(sender=2, receiver=0, transport="NET", way="Socket", device=0),
        ),
        (
            "Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/3(1)/GDRDMA(PCI)/Shared",
            NcclLink(sender=0, receiver=8, transport="NET", way="IB", device=3, gpu_direct=True),
        ),
        (
            "Channel 00/0 : 0[0] -> 8[0] [send] via NET/AWS Libfabric/1/GDRDMA",
            NcclLink(
                sender=0,
                receiver=8,
                transport="NET",
                way="AWS Libfabric",
                device=1,
                gpu_direct=True,
            ),
        ),
    ],
)
def test_a_channel_is_read(line: str, link: NcclLink) -> None:
    assert read_links([P + line]) == (link,)


@pytest.mark.parametrize(
    "line",
    [
        "Channel 00/02 : 0 1 2",  # the ring, not a transport
        "Trees [0] -1/-1/-1->1->2 [1] 0/-1/-1->1->-1",
        "Connected all rings, use ring PXN 0 GDR 0",
        "Check P2P Type isAllDirectP2p 1 directMode 0 isAllCudaP2p 1",
        "CollNet 00/0 : 0 [send] via COLLNET/SHARP/0",
    ],
)
def test_other_lines_name_no_link(line: str) -> None:
    assert read_links([P + line]) == ()


def test_a_link_counts_once_whatever_its_channels() -> None:
    lines = [f"{P}Channel {n:02d}/0 : 0[0] -> 1[1] via P2P/CUMEM" for n in range(24)]
    back = f"{P}Channel 00/0 : 1[1] -> 0[0] via P2P/CUMEM"
    links = read_links([*lines, back])
    assert len(links) == 2
    assert transports(links) == {"P2P"}
    assert in_words(links) == "P2P/CUMEM between 1 pair"


def test_cards_are_listed_and_gpu_direct_is_said() -> None:
    lines = [
        f"{P}Channel 00/0 : {n}[{n}] -> {n + 8}[{n}] [send] via NET/IB/{n}/GDRDMA" for n in range(4)
    ]
    assert in_words(read_links(lines)) == "NET/IB with GPUDirect between 4 pairs (cards 0-3)"
    assert in_words(()) == "NCCL did not say which transport it used"
