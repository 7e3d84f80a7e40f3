"""Which GPUs a job sees: CUDA_VISIBLE_DEVICES against the GPUs that are there.

CUDA reads the list from left to right and stops at the first entry that names nothing; a device
named twice leaves none at all.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from holdfast.analysis.machine.fact import CouldNotLook, Fact, known
from holdfast.analysis.machine.gpu import Gpu, NvidiaFacts
from holdfast.analysis.machine.machine import MachineFacts

VARIABLE = "CUDA_VISIBLE_DEVICES"
DELIBERATELY_NONE = ("", "-1", "none", "NoDevFiles", "void")
"""what people and schedulers set to show no GPU"""
NUMBER = re.compile(r"\s*\+?(\d+)")
WHOLE_NUMBER = re.compile(r"\s*\d+\s*")


class Device(Fact, frozen=True):
    """One device as CUDA numbers them: a GPU, or a MIG instance of one."""

    gpu: int
    """index of the GPU by the driver"""
    mig: str = ""
    """UUID of the instance; '' for a whole GPU"""


class Visible(Fact, frozen=True):
    """What a process sees that is started here."""

    devices: tuple[Device, ...] | None
    """in CUDA's order; None where it cannot be told"""
    value: str | None
    """of CUDA_VISIBLE_DEVICES; None where it is not set"""
    bad: str = ""
    """the first entry that CUDA does not take; it and all after it are not seen"""
    why_bad: str = ""
    odd: tuple[str, ...] = ()
    """entries that CUDA takes for less than what they say: '1gpu2' is 1"""

    @property
    def hidden_on_purpose(self) -> bool:
        return self.value is not None and self.value.strip() in DELIBERATELY_NONE

    @property
    def indices(self) -> tuple[int, ...] | None:
        """The GPUs, each once."""
        if self.devices is None:
            return None
        return tuple(dict.fromkeys(device.gpu for device in self.devices))


NO_GPU = "no NVIDIA GPU on this machine"


def gpus_here(facts: MachineFacts) -> tuple[Gpu, ...]:
    """Every GPU that the driver shows; () where there is none. Ends the check where the driver
    could not be asked."""
    nvidia = known(facts.nvidia)
    if nvidia.present and nvidia.error:
        raise CouldNotLook(f"the NVIDIA driver could not be asked: {nvidia.error}")
    return nvidia.gpus if nvidia.present else ()


def seen_by_job(facts: MachineFacts) -> Visible:
    """By the environment in which the job will start."""
    setting = facts.setting(VARIABLE)
    return visible(known(facts.nvidia), setting.value if setting is not None else None)


def visible(nvidia: NvidiaFacts, value: str | None) -> Visible:
    usable = [gpu for gpu in nvidia.gpus if gpu.unread_kind != "no permission"]
    everything = _every_device(usable)
    if value is None:
        return Visible(devices=everything, value=None)
    if value.strip() in DELIBERATELY_NONE:
        return Visible(devices=(), value=value)
    if everything is None:
        return Visible(devices=None, value=value)
    by_name = value.startswith(("GPU-", "MIG-"))
    return _by_name(usable, value) if by_name else _by_number(everything, value)


def used_by_ranks(facts: MachineFacts) -> tuple[int, ...] | None:
    """The GPUs that the ranks of this job get: rank n takes device n. All that are visible where
    the number of ranks was not given; None where it cannot be told."""
    seen = seen_by_job(facts)
    if seen.devices is None:
        return None
    ranks = facts.plan.nproc if facts.plan.nproc_named else len(seen.devices)
    used = tuple(dict.fromkeys(device.gpu for device in seen.devices[:ranks]))
    gpus = known(facts.nvidia).gpus
    return None if len(used) < len(gpus) and fastest_first(facts) else used


def fastest_first(facts: MachineFacts) -> bool:
    """Does CUDA number these GPUs otherwise than the driver? By default the fastest is its first;
    that matters only where GPUs differ."""
    order = facts.setting("CUDA_DEVICE_ORDER")
    kinds = {gpu.name for gpu in known(facts.nvidia).gpus if gpu.name}
    return len(kinds) > 1 and (order is None or order.value != "PCI_BUS_ID")


def _every_device(gpus: Sequence[Gpu]) -> tuple[Device, ...] | None:
    """Without a list CUDA shows whole GPUs, and of all MIG instances only the first."""
    if any(gpu.mig and gpu.mig_devices is None for gpu in gpus):
        return None
    whole = [Device(gpu=gpu.index) for gpu in gpus if not gpu.mig]
    parts = [Device(gpu=gpu.index, mig=uuid) for gpu in gpus for uuid in gpu.mig_devices or ()]
    return tuple(whole or parts[:1])


def _by_number(everything: Sequence[Device], value: str) -> Visible:
    chosen: list[Device] = []
    odd: list[str] = []
    for entry in value.removesuffix(",").split(","):
        number = NUMBER.match(entry)
        if number is None or int(number[1]) >= len(everything):
            why = "is not a number" if number is None else f"is not one of {len(everything)} GPUs"
            return Visible(
                devices=tuple(chosen), value=value, bad=entry or "''", why_bad=why, odd=tuple(odd)
            )
        device = everything[int(number[1])]
        if device in chosen:
            return Visible(devices=(), value=value, bad=entry, why_bad="is named twice")
        if not WHOLE_NUMBER.fullmatch(entry):
            odd.append(entry)
        chosen.append(device)
    return Visible(devices=tuple(chosen), value=value, odd=tuple(odd))


def _by_name(gpus: Sequence[Gpu], value: str) -> Visible:
    chosen: list[Device] = []
    for entry in value.split(","):
        found = _named(gpus, entry)
        if len(found) != 1:
            why = "fits several GPUs" if found else "is not on this machine"
            return Visible(devices=tuple(chosen), value=value, bad=entry, why_bad=why)
        if found[0] in chosen:
            return Visible(devices=(), value=value, bad=entry, why_bad="is named twice")
        chosen.append(found[0])
    return Visible(devices=tuple(chosen), value=value)


def _named(gpus: Sequence[Gpu], entry: str) -> list[Device]:
    """By the beginning of a GPU's UUID, or by a MIG instance's, whole or in the older form
    'MIG-GPU-<uuid>/<instance>/<compute instance>'."""
    if entry.startswith("GPU-"):
        return [Device(gpu=gpu.index) for gpu in gpus if _begins(gpu.uuid, entry)]
    parts = [Device(gpu=gpu.index, mig=uuid) for gpu in gpus for uuid in gpu.mig_devices or ()]
    found = [device for device in parts if _begins(device.mig, entry)]
    if found or not entry.startswith("MIG-GPU-"):
        return found
    owner = entry.removeprefix("MIG-").partition("/")[0]
    return [Device(gpu=gpu.index, mig=entry) for gpu in gpus if gpu.mig and gpu.uuid == owner]


def _begins(uuid: str, entry: str) -> bool:
    return bool(uuid) and uuid.lower().startswith(entry.strip().lower())
