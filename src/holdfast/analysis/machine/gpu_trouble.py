"""Something that is wrong with a GPU or its switches, before a fault gives it its name."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from holdfast import text
from holdfast.analysis.machine.fact import Fact
from holdfast.findings import Status

RESET = "`sudo nvidia-smi -r -i {gpus}`"


class GpuTrouble(Fact, frozen=True):
    """One thing that is wrong with one device."""

    gpu: int | None
    """by the driver's number; None for a switch, or a GPU that is not listed any more"""
    who: str
    """'GPU 3', 'NVSwitch 0000:c1:00.0'"""
    status: Status
    what: str
    """'has 2 uncorrectable memory errors since the driver was loaded'"""
    meaning: str
    remedy: str
    """'{gpus}' stands for the GPUs that have it, as nvidia-smi takes them"""
    quote: str
    source: str


class SharedGpuTrouble(Fact, frozen=True):
    """The same trouble on one device or several."""

    who: str
    """'GPU 3', 'GPUs 0-3'"""
    each: tuple[GpuTrouble, ...]

    @property
    def first(self) -> GpuTrouble:
        return self.each[0]

    @property
    def remedy(self) -> str:
        gpus = ",".join(str(one.gpu) for one in self.each if one.gpu is not None)
        return self.first.remedy.replace("{gpus}", gpus or "N")


def shared(troubles: Iterable[GpuTrouble]) -> list[SharedGpuTrouble]:
    """The gravest first; the same of several devices is said once."""
    groups: dict[tuple[Status, str, str], list[GpuTrouble]] = {}
    for one in troubles:
        groups.setdefault((one.status, one.what, one.meaning), []).append(one)
    found = [SharedGpuTrouble(who=_who(group), each=tuple(group)) for group in groups.values()]
    return sorted(found, key=lambda group: -group.first.status.concern)


def _who(group: list[GpuTrouble]) -> str:
    numbers = {one.gpu for one in group if one.gpu is not None}
    if len(numbers) == len(group) > 1:
        return f"GPUs {text.numbers(numbers)}"
    return text.names(one.who for one in group)


def beside_the_job(
    troubles: Iterable[GpuTrouble], used: Collection[int] | None
) -> list[GpuTrouble]:
    """Of GPUs that this job does not use only what is broken is worth knowing."""
    found = []
    for one in troubles:
        if used is None or one.gpu is None or one.gpu in used:
            found.append(one)
        elif one.status is Status.ERROR:
            meaning = f"{one.meaning}. This job does not use it"
            found.append(msgspec.structs.replace(one, status=Status.NOTE, meaning=meaning))
    return found
