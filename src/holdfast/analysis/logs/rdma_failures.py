"""What the lines that NCCL writes about RDMA cards mean, and what helps."""

from __future__ import annotations

import re

from holdfast.analysis.logs.patterns import rdma_errors
from holdfast.analysis.logs.wreckage import Sighting

WHY_MODIFY = {
    "Invalid argument": "the two ends do not match: usually a forced NCCL_IB_GID_INDEX, or GIDs of "
    "different types",
    "Connection timed out": "the two cards cannot reach each other: rails that are not connected, "
    "or no route between their addresses",
    "Network is unreachable": "there is no route from this card's address to the other's",
    "No such device": "the card disappeared",
}
FOREIGN_GID = "the card lists GIDs of other network namespaces, as with macvlan in containers"
SKIP_GID = (
    "upgrade to NCCL 2.26.2, which skips such a GID, or set NCCL_IB_GID_INDEX to one that "
    "`show_gids` lists inside this container"
)


def card_was_unusable(seen: Sighting) -> tuple[str, float, str]:
    """The reason, how sure that is, and the fix."""
    device = next(
        (seen.fields[k] for k in ("device", "card", "nic") if seen.fields.get(k)), "the RDMA card"
    )
    if seen.pattern == rdma_errors.BAD_EVENT.name:
        event = next(
            (seen.fields[k] for k in ("event", "old", "table", "ucx", "down") if k in seen.fields),
            "",
        )
        sure = 0.6 if re.search("GID|active|change", event) else 0.85
        return (
            f"{device} reported '{event}': its port or its addresses changed while the job ran",
            sure,
            "check cable and switch port; avoid address changes (DHCP, bonding) on RDMA ports",
        )
    if seen.pattern == rdma_errors.NO_GID.name:
        return (
            f"NCCL could not read the type of a GID ({seen.fields['why']}): {FOREIGN_GID}",
            0.8,
            SKIP_GID,
        )
    if seen.pattern == rdma_errors.MIXED.name:
        return (
            "NCCL was given cards of different types (InfiniBand and Ethernet) to connect",
            0.9,
            "select cards of one type: `export NCCL_IB_HCA==mlx5_0,mlx5_1`",
        )
    if seen.pattern == rdma_errors.REG_MR.name:
        return (
            (
                f"the card rejected the GPU's memory ({seen.fields['why']}): GPUDirect RDMA is not "
                "available"
            ),
            0.5,
            "run `sudo modprobe nvidia_peermem`, or set NCCL_NET_GDR_LEVEL=0 (LOC) to do without",
        )
    if seen.pattern in (rdma_errors.FAILED.name, rdma_errors.UNEQUAL.name):
        return _failed(seen.fields)
    return (
        f"{device} is listed but cannot be used: no access to /dev/infiniband, or a broken driver",
        0.75,
        "start the container with `--device /dev/infiniband`, and check the driver",
    )


def _failed(fields: dict[str, str]) -> tuple[str, float, str]:
    if "fewest" in fields:
        reason = (
            f"some ranks found {fields['most']} network cards and others {fields['fewest']}: a "
            "card is down, hidden from a container, or deselected on some node"
        )
        return reason, 0.85, "compare `ibstat -l` and NCCL_IB_HCA on all nodes"
    if "bad" in fields:
        reason = f"{fields['bad']} of {fields['all']} RDMA cards failed under one connection"
    elif call := fields.get("call") or fields.get("poll"):
        reason = f"the RDMA card's driver refused work ({call}: {fields.get('why', 'an error')})"
    else:
        reason = f"a transfer by RDMA failed for good ({fields['status']})"
    return reason, 0.65, "check cable, switch port and driver of the cards"
