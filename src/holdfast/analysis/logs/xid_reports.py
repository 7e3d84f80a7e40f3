"""Xid lines of the kernel log: which of several counts most, and which rank used that GPU. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.analysis.logs import xid_table
from holdfast.analysis.logs.patterns import nccl
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.logs.xid_table import Xid, XidBlame


def number(sighting: Sighting) -> int:
    """Newer drivers name the Xid that a clean-up (45) followed."""
    return int(sighting.fields.get("previous") or sighting.fields["number"])


def meaning(sighting: Sighting) -> Xid:
    return xid_table.judge(number(sighting), sighting.line.text)


def asked_recovery(seen: Iterable[Sighting], pci: str) -> str:
    """What the driver last asked for this GPU, '' where it did not."""
    lines = [one for one in seen if one.fields.get("pci", "").rstrip(":.") == pci]
    asked = [xid_table.asked_recovery(one.line.text) for one in lines]
    return next((wanted for wanted in reversed(asked) if wanted is not None), "")


def worst_first(seen: Iterable[Sighting]) -> list[Sighting]:
    """Reports that name a cause, the gravest first; without those that follow from another."""
    causes = (one for one in seen if meaning(one).blame is not XidBlame.AFTERMATH)
    return sorted(causes, key=lambda one: (-meaning(one).confidence, one.order))


def rank_on_gpu(wreckage: Wreckage, sighting: Sighting) -> int | None:
    """By the pid in the driver's line, or by the bus id that NCCL prints at its start."""
    pid = sighting.fields.get("pid", "")
    owner = next((r.rank for r in wreckage.ranks if pid.isdecimal() and r.pid == int(pid)), None)
    if owner is not None:
        return owner
    bus, host = nccl_bus_id(sighting.fields.get("pci", "")), sighting.line.host
    on_it = {
        one.rank
        for one in wreckage.seen(nccl.INIT_START, nccl.INIT_COMPLETE)
        if one.fields.get("bus", "").lower() == bus and (not host or one.line.host in ("", host))
    }
    return on_it.pop() if len(on_it) == 1 else None


def nccl_bus_id(pci: str) -> str:
    """0000:3d:00 or 0000:3d:00.0 as NCCL writes it: 3d000."""
    device, _, function = pci.lower().partition(".")
    return (device.replace(":", "") + (function or "0")).lstrip("0")
