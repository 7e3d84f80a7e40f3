"""The NVLinks of a GPU: their state, the other end, and errors by difference."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from holdfast.analysis.machine import NvLink
from holdfast.system.nvidia.bus_id import short_bus_id
from holdfast.system.nvidia.library import Library

MOST = 36
"""NVML_NVLINK_MAX_LINKS of 2026; no GPU before Rubin has more than 18"""
BETWEEN = 0.2
"""seconds from the first look at the counters to the second, at least"""
REMOTE = {0: "gpu", 1: "npu", 2: "switch"}
COUNTERS = {0: "replay", 1: "recovery", 2: "crc_flit", 3: "crc_data", 4: "ecc_data"}
"""of nvmlDeviceGetNvLinkErrorCounter, up to NVLink 4"""
FIELDS = {
    206: "malformed_packets",
    207: "buffer_overruns",
    208: "receive_errors",
    209: "receive_remote_errors",
    210: "receive_general_errors",
    211: "local_link_integrity",
    212: "transmit_discards",
    213: "recovery_successful",
    214: "recovery_failed",
    219: "effective_errors",
    221: "symbol_errors",
}
"""field values of NVLink 5 (Blackwell) and later"""


class NvLinks:
    """Made at the first look at a GPU; `read` takes the second."""

    def __init__(self, nvml: Library, gpu: Any) -> None:
        self._nvml, self._gpu = nvml, gpu
        self._links = self._states()
        self._by_field: bool | None = None
        self._before = self._errors()
        self._looked = time.monotonic()

    def read(self) -> tuple[NvLink, ...]:
        if not any(link.active for link in self._links):
            return tuple(self._links)
        time.sleep(max(0.0, self._looked + BETWEEN - time.monotonic()))
        now = self._errors()
        return tuple(
            msgspec.structs.replace(
                link, errors=_above_zero(now[link.index]), growing=self._growth(link.index, now)
            )
            for link in self._links
        )

    def _growth(self, link: int, now: dict[int, dict[str, int]]) -> dict[str, int]:
        before = self._before[link]
        return _above_zero({name: n - before.get(name, n) for name, n in now[link].items()})

    def _states(self) -> list[NvLink]:
        """Links that the card does not have are refused."""
        states = {
            index: self._nvml.number("nvmlDeviceGetNvLinkState", self._gpu, index)
            for index in range(MOST)
        }
        return [self._link(i, active=bool(s)) for i, s in states.items() if s is not None]

    def _link(self, index: int, *, active: bool) -> NvLink:
        if not active:  # the other end is not known
            return NvLink(index=index, active=False, remote="")
        kind = self._nvml.number("nvmlDeviceGetNvLinkRemoteDeviceType", self._gpu, index)
        pci = self._nvml.ask("nvmlDeviceGetNvLinkRemotePciInfo", self._gpu, index)
        return NvLink(
            index=index,
            active=True,
            remote="" if kind is None else REMOTE.get(kind, ""),
            remote_bus_id=short_bus_id(pci.busId) if pci is not None else "",
        )

    def _errors(self) -> dict[int, dict[str, int]]:
        active = [link.index for link in self._links if link.active]
        errors: dict[int, dict[str, int]] = {link.index: {} for link in self._links}
        if self._by_field is not True:
            for link in active:
                errors[link] = self._by_call(link)
            if any(errors.values()):
                self._by_field = False
        if active and self._by_field is not False:
            told = self._nvml.fields(self._gpu, [(f, link) for link in active for f in FIELDS])
            self._by_field = bool(told)
            for (field, link), value in told.items():
                errors[link][FIELDS[field]] = value
        return errors

    def _by_call(self, link: int) -> dict[str, int]:
        told = {
            name: self._nvml.number("nvmlDeviceGetNvLinkErrorCounter", self._gpu, link, counter)
            for counter, name in COUNTERS.items()
        }
        return {name: value for name, value in told.items() if value is not None}


def _above_zero(counters: dict[str, int]) -> dict[str, int]:
    return {name: value for name, value in counters.items() if value > 0}
