"""Every healthy machine with GPUs is passed in silence; what is wrong is said."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import msgspec
import pytest

from holdfast import catalogue
from holdfast.analysis.machine import known
from holdfast.findings import Status
from holdfast.system import deadline
from tests.check.gpu_machines import read_machine
from tests.fakes.nvml import profiles
from tests.fakes.nvml.gpu_kinds import nvlinks
from tests.fakes.nvml.install import environment
from tests.fakes.nvml.state import FakeDriver, FakeFabric, FakeLink

FAULTS = catalogue.choose([], [])


def changed(**changes: Any) -> FakeDriver:
    """A board of which three GPUs are here, but for the third."""
    board = profiles.hgx_h100()
    return profiles.changed(msgspec.structs.replace(board, gpus=board.gpus[:3]), 2, **changes)


def worn_links() -> tuple[FakeLink, ...]:
    return (FakeLink(grows={"0": 7}), *nvlinks(17))


@pytest.mark.parametrize("name", profiles.HEALTHY)
def test_a_healthy_machine_is_passed_in_silence(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = read_machine(monkeypatch, name, profiles.HEALTHY[name]())
    assert [gpu.unread for gpu in known(facts.nvidia).gpus] == [""] * facts.plan.nproc
    spoken = [
        f"{finding.status.name} {finding.slug}: {finding.summary}"
        for finding in catalogue.check(facts, FAULTS)
        if finding.applies and finding.status is not Status.OK
    ]
    assert spoken == []


@pytest.mark.parametrize(
    ("driver", "said"),
    [
        (profiles.lost_gpu(), "ERROR gpu-hardware"),
        (profiles.mismatch(), "ERROR driver-mismatch"),
        (changed(remapped=(0, 1, 1, 0)), "NOTE gpu-hardware"),
        (changed(remapped=(0, 9, 0, 1)), "ERROR gpu-hardware"),
        (changed(fields={230: (1, 1)}), "ERROR gpu-hardware"),
        (changed(ecc_errors=(0, 3, 0, 3)), "WARNING gpu-hardware"),
        (changed(clock_reasons=0x48), "WARNING gpu-hardware"),
        (changed(links=worn_links()), "WARNING gpu-hardware"),
        (changed(links=nvlinks(17)), "WARNING gpu-hardware"),
        (changed(pcie=(4, 16, 5, 5)), "WARNING gpu-hardware"),
        (changed(fabric=FakeFabric(state=3, health_mask=0xA9)), "fabric-manager"),
        (changed(fabric=FakeFabric(state=2)), "fabric-manager"),
        (changed(fabric=FakeFabric(state=3, status=23)), "fabric-manager"),
        (changed(processes=((4_190_000, 70 << 30),), memory_used=70 << 30), "gpu-occupied"),
        (changed(compute_mode=2), "gpu-occupied"),
    ],
)
def test_what_is_wrong_is_said(
    driver: FakeDriver, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = read_machine(monkeypatch, "hgx_h100", driver)
    found = [f"{one.status.name} {one.slug}" for one in catalogue.check(facts, FAULTS)]
    assert any(said in one for one in found if not one.startswith(("OK", "SKIPPED"))), found


def test_a_gpu_of_another_job_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = read_machine(monkeypatch, "pcie_cards", profiles.without_permission())
    found = {one.slug: one for one in catalogue.check(facts, FAULTS) if one.status.concern > 1}
    assert found == {}


def test_a_whole_check_over_the_fake_library() -> None:
    """`holdfast check` as a user runs it; the library is replaced before anything loads it."""
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "check", "--only", "gpu-hardware", "--fail-on", "error"],
        env=environment(profiles.lost_gpu()),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "GPUs: 7 × NVIDIA H100 80GB HBM3 (79.6 GiB), GPU 3 not readable" in done.stdout
    assert "GPU is lost" in done.stdout


@pytest.mark.long
def test_a_call_that_never_returns_costs_its_deadline_and_is_named() -> None:
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "check", "--only", "gpu-hardware"],
        env=environment(profiles.hung_gpu("nvmlDeviceGetEccMode")),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "GPUs: 7 × NVIDIA H100 80GB HBM3 (79.6 GiB), GPU 5 not readable" in done.stdout
    assert "GPU 5" in done.stdout
    assert "no answer within" in done.stdout
    # Bounded by the deadline, not by the call; the factor leaves room for a busy machine.
    assert time.monotonic() - began < 5 * deadline.DRIVER_SECONDS
