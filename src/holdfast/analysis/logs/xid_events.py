"""What the kernel log says of GPUs and NVSwitches, as `check` reads it: which device, and what."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from holdfast import text
from holdfast.analysis.logs import sxid_table, xid_table
from holdfast.analysis.logs.patterns import kernel
from holdfast.analysis.logs.xid_table import Xid, XidBlame
from holdfast.analysis.machine import Gpu, KernelEvent
from holdfast.analysis.machine.gpu_trouble import GpuTrouble
from holdfast.analysis.machine.pci import pci_place
from holdfast.findings import Status

REMAPPED = 63
"""what came of it the driver says itself"""
_FALLEN = re.compile(r"(?:GPU|PCI:?)\s?(?P<pci>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})")


class XidEvent(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    """of the cause, where the driver names an earlier one"""
    pci: str
    """'0000:3d:00', as the driver writes it"""
    gpu: int | None
    """None where no GPU is at that place any more"""
    xid: Xid
    event: KernelEvent

    @property
    def place(self) -> str:
        return f"GPU {self.gpu} ({self.pci})" if self.gpu is not None else f"GPU {self.pci}"


class SxidEvent(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    pci: str
    sxid: sxid_table.Sxid
    event: KernelEvent


def xids(events: Iterable[KernelEvent], gpus: Sequence[Gpu]) -> list[XidEvent]:
    """Without what only follows from another, and those of a program's own bugs included."""
    found = []
    for event in events:
        if event.kind != "xid" or not (seen := kernel.XID.regex.search(event.text)):
            continue
        number = int(seen["previous"] or seen["number"])
        pci = pci_place(seen["pci"])
        found.append(
            XidEvent(
                number=number,
                pci=pci,
                gpu=next((gpu.index for gpu in gpus if pci and pci_place(gpu.bus_id) == pci), None),
                xid=xid_table.judge(number, event.text),
                event=event,
            )
        )
    return [one for one in found if one.xid.blame is not XidBlame.AFTERMATH]


def asked_for_recovery(events: Iterable[KernelEvent]) -> dict[str, str]:
    """What the driver last asked for each GPU (Xid 154), by its place; '' where it took it back."""
    asked = {}
    for event in events:
        seen = kernel.XID.regex.search(event.text)
        wanted = xid_table.asked_recovery(event.text)
        if seen and wanted is not None:
            asked[pci_place(seen["pci"])] = wanted
    return asked


def sxids(events: Iterable[KernelEvent]) -> list[SxidEvent]:
    return [
        SxidEvent(
            number=int(seen["number"]),
            pci=seen["pci"],
            sxid=sxid_table.judge(int(seen["number"]), event.text),
            event=event,
        )
        for event in events
        if event.kind == "sxid" and (seen := kernel.SXID.regex.search(event.text))
    ]


def not_started(events: Iterable[KernelEvent]) -> dict[str, KernelEvent]:
    """GPUs that the driver could not start, by their place; the last word of each."""
    return {
        pci_place(seen["pci"]): event
        for event in events
        if event.kind == "gpu" and (seen := _FALLEN.search(event.text))
    }


# --- what it means for the next job --------------------------------------------------------------


def troubles(events: Sequence[KernelEvent], gpus: Sequence[Gpu]) -> list[GpuTrouble]:
    """What hardware and driver reported; a program's own bugs are not among it."""
    asked = asked_for_recovery(events)
    reported = xids(events, gpus)
    found = [_xid_trouble(one, gpus, asked) for one in reported]
    found += [_sxid_trouble(one, gpus) for one in sxids(events)]
    found += [
        _dead(where, event, gpus)
        for where, event in not_started(events).items()
        if where not in {one.pci for one in reported}
    ]
    return [one for one in found if one is not None]


def of_programs(events: Iterable[KernelEvent]) -> list[int]:
    """Numbers that say more of a program than of the GPU."""
    return sorted({one.number for one in xids(events, ()) if one.xid.blame is XidBlame.PROGRAM})


def _xid_trouble(one: XidEvent, gpus: Sequence[Gpu], asked: dict[str, str]) -> GpuTrouble | None:
    gpu = next((gpu for gpu in gpus if gpu.index == one.gpu), None)
    counted_by_driver = one.number == REMAPPED and gpu is not None and gpu.remapped is not None
    if one.xid.blame is XidBlame.PROGRAM or counted_by_driver:
        return None
    status, since = _state(one, gpu, asked)
    return GpuTrouble(
        gpu=one.gpu,
        who=one.place if one.gpu is None else f"GPU {one.gpu}",
        status=status,
        what=f"reported Xid {one.number}: {one.xid.meaning}",
        meaning=f"{_when(one.event)}; {since}",
        remedy=one.xid.advice("{gpus}" if one.gpu is not None else f"{one.pci}.0"),
        quote=one.event.text,
        source="kernel log",
    )


def _state(one: XidEvent, gpu: Gpu | None, asked: dict[str, str]) -> tuple[Status, str]:
    """Has it been put right since? A driver of 570 or newer tells."""
    if not one.xid.needs_repair:
        return Status.NOTE, "the GPU went on"
    if gpu is None:
        return Status.WARNING, "that GPU is not among those visible here"
    if gpu.unread:
        return Status.ERROR, f"the GPU cannot be read now: {gpu.unread}"
    if gpu.recovery_action == "none":
        return Status.NOTE, "it was reset since, or needs no reset: the driver asks for nothing now"
    if wanted := gpu.recovery_action or asked.get(one.pci):
        return Status.ERROR, f"the driver asks for: {wanted}"
    return Status.WARNING, "this driver does not tell whether it was put right since"


def _sxid_trouble(one: SxidEvent, gpus: Sequence[Gpu]) -> GpuTrouble | None:
    if not one.sxid.fatal:
        return None
    well = bool(gpus) and all(
        gpu.recovery_action == "none" and gpu.fabric is not None and gpu.fabric.status == "success"
        for gpu in gpus
    )
    return GpuTrouble(
        gpu=None,
        who=f"NVSwitch {one.pci}",
        status=Status.NOTE if well else Status.WARNING,
        what=f"reported SXid {one.number}: {one.sxid.meaning}",
        meaning=f"{_when(one.event)}; "
        + (
            "all GPUs are in the fabric now, so this was put right: resetting a GPU causes it too"
            if well
            else "it can stop every GPU of the machine"
        ),
        remedy=one.sxid.action.value,
        quote=one.event.text,
        source="kernel log",
    )


def _dead(where: str, event: KernelEvent, gpus: Sequence[Gpu]) -> GpuTrouble | None:
    gpu = next((gpu for gpu in gpus if pci_place(gpu.bus_id) == where), None)
    if gpu is not None and not gpu.unread:
        return None  # it started later
    return GpuTrouble(
        gpu=gpu.index if gpu else None,
        who=f"GPU {gpu.index}" if gpu else f"GPU {where}",
        status=Status.ERROR if gpu else Status.WARNING,
        what="could not be started by the driver",
        meaning=f"{_when(event)}; programs do not see it, or fail at their first use of it",
        remedy="take this machine out of the job and restart it; if it stays away have the GPU "
        "looked at",
        quote=event.text,
        source="kernel log",
    )


def _when(event: KernelEvent) -> str:
    ago = "" if event.seconds_ago is None else f"{text.duration(event.seconds_ago)} ago"
    if event.count > 1:
        return f"{event.count} times" + (f", last {ago}" if ago else "")
    return ago or "once"
