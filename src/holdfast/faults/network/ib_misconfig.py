"""InfiniBand or RoCE is present but does not work.

What you see   NCCL: `Call to ibv_modify_qp failed`, `Got completion from peer … status=12` (older:
               `with error 12`, newer: `IBV_WC_RETRY_EXC_ERR(12)`), `async fatal event`,
               `GID table changed`, `Unable to open device`; then ncclSystemError or ncclRemoteError
               on every rank of the group.
Why            In modify_qp two cards agree on a path: 'Invalid argument' is a GID index that does
               not exist or another type of address on the other side; 'timed out' and 'unreachable'
               are rails that are not connected to each other, or no route for RoCE. Status 12 means
               that the other card never acknowledged: unreachable from the start, a link that
               flapped, a lossy RoCE network, or a peer that died. Statuses 1, 2 and 8 at the first
               transfer are often two different MTUs. Status 5 only follows from an earlier error.
How to be sure Run `ibstat` or `rdma link` (state ACTIVE, same rate everywhere), `show_gids`, then
               `ib_write_bw` between the two machines with the same devices as in NCCL's line. In a
               container: `ls -l /dev/infiniband`.
Fix            Unset NCCL_IB_GID_INDEX (NCCL from 2.21 on finds it), give RoCE ports addresses that
               reach each other, and use one MTU on all. Rails that are not connected:
               NCCL_CROSS_NIC=0. Try NCCL_IB_TIMEOUT last: it only waits longer. To confirm that
               RDMA is the cause: one run with NCCL_IB_DISABLE=1.
Known limits   It is recognised in logs only; `holdfast check` does not query the cards. Status 12
               of a broken path and of a peer that died are the same line; only the log of the peer
               tells them apart.
Sources        NVIDIA/nccl src/misc/ibvwrap.cc: ibvModifyQpLog, printIbModifyQpHint
               NVIDIA/nccl src/transport/net_ib/p2p.cc and common.cc: completions, async events
               https://github.com/NVIDIA/nccl/issues/2013
               https://github.com/NVIDIA/nccl/issues/902
               https://github.com/NVIDIA/nccl/issues/1524
"""

from __future__ import annotations

import re

from holdfast import text
from holdfast.analysis.collectives import waits
from holdfast.analysis.job import rdma_ports
from holdfast.analysis.logs import sightings
from holdfast.analysis.logs.patterns import rdma_errors
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.scene.scene import Scene
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Verdict

FAULT = Fault(
    code="HOLD210",
    slug="ib-misconfig",
    related=("ib-memlock", "rdma-unused", "packet-loss", "peer-unreachable"),
    traits=RunTraits(priority=475, needs_stall=True, never_acts=True, whole_job=True),
)
FAULT.log_patterns.extend(rdma_errors.ALL)


WHY_MODIFY = {
    "Invalid argument": "the two ends do not match: usually a forced NCCL_IB_GID_INDEX, or GIDs of "
    "different types",
    "Connection timed out": "the two cards cannot reach each other: rails that are not connected, "
    "or no route between their addresses",
    "Network is unreachable": "there is no route from this card's address to the other's",
    "No such device": "the card disappeared",
}
MTU_STATUSES = {"1", "2", "8"}
FLUSHED, ACCESS_ERROR, RETRIES_EXCEEDED = "5", "4", "12"
FOREIGN_GID = "the card lists GIDs of other network namespaces, as with macvlan in containers"
SKIP_GID = (
    "upgrade to NCCL 2.26.2, which skips such a GID, or set NCCL_IB_GID_INDEX to one that "
    "`show_gids` lists inside this container"
)
CONFIRM_RDMA = (
    "confirm it with one run with NCCL_IB_DISABLE=1, then fix the path between the two cards"
)


# --- run -----------------------------------------------------------------------------------------


@FAULT.run
def port_failed_while_all_ranks_wait(scene: Scene) -> Verdict | None:
    """Every rank is in the collective, so that no rank is to blame; where one is missing, the
    ports are evidence beside it."""
    seen = waits.analyse(scene)
    if seen.roots or seen.mismatch or seen.deadlock or waits.moved_on(scene):
        return None
    waiting = rdma_ports.in_flight(scene)
    failed = [one for one in rdma_ports.changed(scene, waiting) if one.is_grave]
    if not failed:
        return None
    worst = failed[0]
    where = f" of node {worst.node}" if worst.node else ""
    more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
    titles = text.names(dict.fromkeys(waiting.values()), shown=2)
    ranks = f"{text.ranks(waiting)} {text.plural(waiting, 'waits', 'wait')}"
    return FAULT.verdict(
        f"RDMA port {worst.words}{where}{more}, since the ranks were started; {ranks} in {titles}, "
        "which no rank is missing from",
        ranks=(),
        victims=waiting,
        certain=False,
        fix=f"look at that port{where}: `ibstat {worst.change.port.partition(':')[0]}`, then its "
        "cable, transceiver and switch port",
        evidence=rdma_ports.evidence(failed),
    )


# --- explain -------------------------------------------------------------------------------------


@FAULT.explain
def cards_could_not_connect(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(rdma_errors.MODIFY_QP)
    if not seen:
        return None
    first = seen[0].fields
    said = (first.get("why") or first.get("said", "")).strip()
    why = WHY_MODIFY.get(said, "they found no common path")
    forced = wreckage.settings.get("NCCL_IB_GID_INDEX", "")
    return FAULT.diagnosis(
        f"two RDMA cards could not set up a connection ({said or 'no error given'}): "
        f"{why}{f'; NCCL_IB_GID_INDEX={forced} is set' if forced else ''}",
        confidence=0.9,
        seen=seen,
        culprit=_card(seen[0], f"NCCL_IB_GID_INDEX={forced}" if forced else ""),
        fix="unset NCCL_IB_GID_INDEX and let NCCL (from 2.21) find it; check that the addresses of "
        "both cards reach each other; set NCCL_CROSS_NIC=0 for rails that are not connected",
        next="show_gids; rdma link",
    )


@FAULT.explain
def rdma_transfer_failed(wreckage: Wreckage) -> Diagnosis | None:
    if wreckage.seen(rdma_errors.MODIFY_QP):
        return None
    seen = [
        s
        for s in wreckage.seen(rdma_errors.COMPLETION)
        if s.fields["status"] not in (FLUSHED, ACCESS_ERROR)
    ]
    if not seen:
        return None
    first = seen[0].fields
    status, peer = first["status"], first.get("peer", "the other side")
    if status == RETRIES_EXCEEDED:
        meaning = (
            "the other card never acknowledged: it is unreachable, the link flaps or loses "
            "packets, or the peer died"
        )
    elif status in MTU_STATUSES:
        meaning = "the data did not fit the buffer, as with different MTUs on the two machines"
    else:
        meaning = "the transfer failed in the cards"
    return FAULT.diagnosis(
        f"an RDMA transfer with {peer} ended with status {status}: {meaning}",
        confidence=_transfer_confidence(wreckage, status),
        seen=seen,
        culprit=_card(seen[0], f"the path to {peer}" if "peer" in first else ""),
        victims=[s.rank for s in seen if s.rank is not None],
        fix=f"check whether the process at {peer} was alive; if so, {CONFIRM_RDMA}",
        next=sightings.shell_command("ibstat; ping -c 3 {}", first.get("peer", "")) or "ibstat",
        unknown=[f"whether {peer} had died before: see its own log"],
    )


@FAULT.explain
def card_was_unusable(wreckage: Wreckage) -> Diagnosis | None:
    if wreckage.seen(rdma_errors.MODIFY_QP, rdma_errors.COMPLETION):
        return None
    seen = wreckage.seen(
        rdma_errors.BAD_EVENT,
        rdma_errors.NOT_OPENED,
        rdma_errors.NO_GID,
        rdma_errors.MIXED,
        rdma_errors.REG_MR,
    )
    if not seen:
        return None
    reason, confidence, fix = _unusable(seen[0])
    return FAULT.diagnosis(
        reason,
        confidence=confidence,
        seen=seen,
        culprit=_card(seen[0], "the RDMA card"),
        fix=fix,
        next="ibstat; ls -l /dev/infiniband",
    )


@FAULT.explain
def efa_failed(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(rdma_errors.OFI_ERROR)
    if not seen or wreckage.roots(but=[FAULT.slug]):
        return None
    return FAULT.diagnosis(
        "a transfer through libfabric (EFA) failed: the network card or security group blocks it, "
        "or the peer died",
        confidence=0.4,
        seen=seen,
        culprit=Culprit(host=seen[0].line.host, what="libfabric"),
        fix="allow all traffic within the security group, in both directions; then read the log of "
        "the peer",
        next="fi_info -p efa",
    )


@FAULT.explain
def efa_could_not_be_opened(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(rdma_errors.OFI_ABSENT)
    if not seen or wreckage.seen(rdma_errors.OFI_ERROR) or wreckage.roots():
        return None
    return FAULT.diagnosis(
        "libfabric is installed but could open no EFA card: the container has no access to the "
        "devices, the locked-memory limit is too low, or its version does not match the plugin's",
        confidence=0.55,
        seen=seen,
        culprit=Culprit(host=seen[0].line.host, what="libfabric"),
        fix="start the container with the cards (`--device /dev/infiniband/uverbs0`, one for each) "
        "and `--ulimit memlock=-1`; use libfabric and plugin from the same EFA installer",
        next="fi_info -p efa; ls /dev/infiniband",
        unknown=["whether this machine has EFA: without it NCCL uses TCP"],
    )


def _unusable(seen: Sighting) -> tuple[str, float, str]:
    device = seen.fields.get("device") or seen.fields.get("card", "the RDMA card")
    if seen.pattern == rdma_errors.BAD_EVENT.name:
        event = next(
            (seen.fields[k] for k in ("event", "old", "table", "ucx") if k in seen.fields), ""
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
    return (
        f"{device} is listed but cannot be used: no access to /dev/infiniband, or a broken driver",
        0.75,
        "start the container with `--device /dev/infiniband`, and check the driver",
    )


def _transfer_confidence(wreckage: Wreckage, status: str) -> float:
    if wreckage.roots(but=[FAULT.slug]):
        return 0.35
    return 0.6 if status == RETRIES_EXCEEDED else 0.65


def _card(seen: Sighting, fallback: str) -> Culprit:
    return Culprit(host=seen.line.host, what=seen.fields.get("device") or fallback)
