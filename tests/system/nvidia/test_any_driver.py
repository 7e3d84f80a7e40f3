"""Whatever a driver refuses, lacks or says, a GPU is read as far as it can be."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.machine import Gpu
from holdfast.system.nvidia import nvlinks
from holdfast.system.nvidia.gpu import identify, read_gpu
from holdfast.system.nvidia.library import GpuGone, Library
from tests.fakes.nvml import profiles
from tests.fakes.nvml.gpu_calls import NUMBERS, REASONS
from tests.fakes.nvml.install import install
from tests.fakes.nvml.session import GPU_CALLS
from tests.fakes.nvml.state import FakeDriver, FakeFabric

CALLS = sorted({*GPU_CALLS, *NUMBERS, *REASONS})
FATAL = {15, 16, 28}
CODES = st.sampled_from([1, 2, 3, 4, 6, 9, 10, 13, 14, 17, 19, 25, 27, 29, 999, 4242, *FATAL])
DRIVERS = st.sampled_from(sorted(profiles.HEALTHY)).map(lambda name: profiles.HEALTHY[name]())


def read(driver: FakeDriver) -> Gpu | GpuGone:
    """As a child does it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nvlinks, "BETWEEN", 0.0)
        install(patch, driver)
        nvml = Library()
        assert nvml.initialise() == (0, "")
        try:
            handle = nvml.handle(0)
            return read_gpu(nvml, handle, identify(nvml, handle, 0))
        except GpuGone as gone:
            return gone


@given(DRIVERS, st.dictionaries(st.sampled_from(CALLS), CODES, max_size=12))
def test_refused_calls_cost_what_they_would_have_told(
    driver: FakeDriver, refusals: dict[str, int]
) -> None:
    seen = read(profiles.changed(driver, 0, refusals=refusals))
    if isinstance(seen, GpuGone):
        assert FATAL & set(refusals.values())
    else:
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(seen), type=Gpu) == seen


@given(DRIVERS, st.sets(st.sampled_from(CALLS)))
def test_missing_calls_cost_what_they_would_have_told(
    driver: FakeDriver, missing: set[str]
) -> None:
    lacking = msgspec.structs.replace(driver, missing=tuple(missing))
    assert isinstance(read(lacking), Gpu)


UINT = st.integers(0, 2**32 - 1)


@given(UINT, UINT, UINT, UINT, st.integers(0, 255))
def test_any_fabric_state_is_told(
    state: int, status: int, clique: int, mask: int, summary: int
) -> None:
    fabric = FakeFabric(
        state=state, status=status, clique=clique, health_mask=mask, summary=summary
    )
    seen = read(profiles.changed(profiles.one_passed_through(), 0, fabric=fabric))
    assert isinstance(seen, Gpu)
    assert seen.fabric is not None
    assert seen.fabric.health_mask == mask
    assert bool(seen.fabric.status) == (state == 3)


@given(UINT, UINT, UINT, UINT, UINT, st.binary(max_size=20))
def test_any_numbers_and_names_are_told(
    architecture: int, action: int, reasons: int, mode: int, virtual: int, name: bytes
) -> None:
    text = name.replace(b"\0", b"").decode(errors="surrogateescape")
    seen = read(
        profiles.changed(
            profiles.one_passed_through(),
            0,
            name=text,
            architecture=architecture,
            fields={230: (1, action)},
            clock_reasons=reasons,
            compute_mode=mode,
            virtualization=virtual,
        )
    )
    assert isinstance(seen, Gpu)
    assert seen.recovery_action
    assert msgspec.msgpack.encode(seen)
