"""NVIDIA's driver as holdfast reads it, by NVIDIA's bindings over a fake library."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.analysis.machine import Gpu, NvidiaFacts, Unread
from holdfast.system import deadline
from holdfast.system.nvidia import driver, nvlinks
from tests.fakes.nvml import profiles
from tests.fakes.nvml.gpu_kinds import a100, b200, gpu
from tests.fakes.nvml.gpu_kinds import nvlinks as fake_links
from tests.fakes.nvml.install import install
from tests.fakes.nvml.state import FakeDriver, FakeFabric, FakeLink


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvlinks, "BETWEEN", 0.0)


def read(patch: pytest.MonkeyPatch, fake: FakeDriver, root: str = "/", **how: Any) -> NvidiaFacts:
    install(patch, fake, **how)
    facts = driver.read_driver(root)
    assert isinstance(facts, NvidiaFacts)
    return facts


def only(patch: pytest.MonkeyPatch, **changes: Any) -> Gpu:
    """One GPU, otherwise healthy."""
    fake = FakeDriver(version="580.105.08", cuda=13000, gpus=(gpu(**changes),))
    return read(patch, fake).gpus[0]


@pytest.mark.parametrize("name", ["hgx_h200", "gb200_tray", "old_driver", "with_mig", "cloud_t4"])
def test_bindings_of_2023_read_every_gpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest ones read all kinds of machines in tests/check/test_gpu_machines.py."""
    fake = profiles.HEALTHY[name]()
    facts = read(monkeypatch, fake, old_bindings=True)
    assert (facts.present, facts.error, facts.library) == (True, "", fake.version)
    assert [g.uuid for g in facts.gpus] == [g.uuid for g in fake.gpus]
    assert [g.unread for g in facts.gpus] == [""] * len(fake.gpus)
    assert [len(g.nvlinks) for g in facts.gpus] == [len(g.links) for g in fake.gpus]
    assert not any(g.fabric and g.fabric.unhealthy for g in facts.gpus)


def test_a_whole_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = read(monkeypatch, profiles.one_passed_through())
    (seen,) = facts.gpus
    assert (facts.module, facts.cuda) == ("580.159.04", "13.0")
    assert (seen.name, seen.bus_id, seen.minor) == ("NVIDIA H200", "0000:00:06.0", 0)
    assert (seen.memory_total, seen.memory_used) == (150754820096, 644939776)
    assert (seen.architecture, seen.virtualization) == ("hopper", "passthrough")
    assert (seen.temperature, seen.slowdown_temperature) == (37, 89)
    assert (seen.power, seen.power_limit, seen.recovery_action) == (78.765, 700.0, "none")
    assert seen.pcie is not None
    assert (seen.pcie.width, seen.pcie.generation_possible) == (16, 5)
    assert seen.fabric is not None
    assert seen.fabric.state == "not supported"
    assert seen.clock_events == ("idle",)


# --- what is wrong ------------------------------------------------------------------------------


def test_a_lost_gpu_is_named_and_the_others_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = read(monkeypatch, profiles.lost_gpu())
    assert [g.unread_kind for g in facts.gpus] == ["", "", "", "lost", "", "", "", ""]
    assert facts.gpus[3].unread == "GPU is lost"


def test_a_gpu_lost_while_it_is_read_keeps_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = only(monkeypatch, refusals={"nvmlDeviceGetRemappedRows": profiles.LOST})
    assert (seen.unread_kind, seen.name) == ("lost", "NVIDIA H100 80GB HBM3")
    assert seen.bus_id == "0000:1b:00.0"


def test_a_gpu_that_is_anothers_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = read(monkeypatch, profiles.without_permission())
    assert facts.gpus[1].unread_kind == "no permission"
    assert facts.gpus[1].unread == "Insufficient Permissions"


def test_a_gpu_that_hangs_costs_its_deadline_and_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake = profiles.hung_gpu()
    for one in fake.gpus:
        (tmp_path / "proc/driver/nvidia/gpus" / one.bus_id[4:].lower()).mkdir(parents=True)
    (tmp_path / "dev").mkdir()
    monkeypatch.setattr(deadline, "DRIVER_SECONDS", 2.0)
    facts = read(monkeypatch, fake, str(tmp_path))
    hung = facts.gpus[5]
    assert (hung.unread, hung.unread_kind) == ("no answer within 2 s", "no answer")
    assert hung.bus_id == fake.gpus[5].bus_id[4:].lower()
    assert [g.unread for g in facts.gpus if g is not hung] == [""] * 7


def test_a_driver_that_hangs_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline, "DRIVER_SECONDS", 1.0)
    facts = read(monkeypatch, profiles.hung_driver())
    assert (facts.present, facts.error, facts.gpus) == (True, "no answer within 0.5 s", ())


def test_a_mismatch_tells_both_versions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    loaded(tmp_path, "NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23 10:11:16 UTC 2025")
    facts = read(monkeypatch, profiles.mismatch(), str(tmp_path))
    assert (facts.error, facts.error_code) == ("Driver/library version mismatch", 18)
    assert (facts.module, facts.library, facts.open_module) == ("580.95.05", "580.105.08", False)


def test_a_module_that_is_not_loaded_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    card(tmp_path, "0000:3d:00.0")
    facts = read(monkeypatch, profiles.not_loaded(), str(tmp_path))
    assert (facts.error, facts.module, facts.library) == ("Driver Not Loaded", "", "580.95.05")
    assert (facts.present, facts.unbound) == (True, 1)


def test_a_card_of_another_driver_waits_for_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    card(tmp_path, "0000:3d:00.0", driver="vfio-pci")
    card(tmp_path, "0000:3e:00.0", kind="0x068000")  # an NVSwitch
    facts = read(monkeypatch, profiles.not_loaded(), str(tmp_path))
    assert (facts.present, facts.unbound) == (False, 0)


def test_a_container_that_was_given_no_gpu_has_none(tmp_path: Path) -> None:
    """/proc and /sys are those of its machine."""
    loaded(tmp_path, "NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build")
    card(tmp_path, "0000:3d:00.0", driver="nvidia")
    facts = driver.read_driver(str(tmp_path))
    assert isinstance(facts, NvidiaFacts)
    assert (facts.present, facts.module, facts.error_code) == (False, "580.159.04", 12)


def card(root: Path, place: str, *, kind: str = "0x030200", driver: str = "") -> None:
    folder = root / "sys/bus/pci/devices" / place
    folder.mkdir(parents=True)
    (folder / "vendor").write_text("0x10de\n")
    (folder / "class").write_text(f"{kind}\n")
    if driver:
        (root / "drivers" / driver).mkdir(parents=True)
        (folder / "driver").symlink_to(root / "drivers" / driver)


# --- what is not there --------------------------------------------------------------------------


def test_a_machine_without_a_driver() -> None:
    facts = driver.read_driver()
    assert isinstance(facts, NvidiaFacts)
    assert (facts.present, facts.error_code) == (False, 12)


def test_the_kind_of_the_module_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded(tmp_path, "NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build")
    facts = read(monkeypatch, profiles.one_passed_through(), str(tmp_path))
    assert (facts.module, facts.open_module) == ("580.159.04", True)


def test_without_bindings_a_driver_is_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "installed", lambda: False)
    (tmp_path / "dev").mkdir()
    assert driver.read_driver(str(tmp_path)) == NvidiaFacts(present=False)
    (tmp_path / "dev/nvidiactl").touch()
    missing = driver.read_driver(str(tmp_path))
    assert isinstance(missing, Unread)
    assert "pip install nvidia-ml-py" in missing.why


def loaded(root: Path, version: str) -> None:
    (root / "dev").mkdir()
    (root / "proc/driver/nvidia").mkdir(parents=True)
    (root / "proc/driver/nvidia/version").write_text(f"NVRM version: {version}\nGCC version: 15\n")


# --- parts of a GPU -----------------------------------------------------------------------------


def test_errors_on_links_are_told_with_their_growth(monkeypatch: pytest.MonkeyPatch) -> None:
    worn = FakeLink(errors=(0, 3, 70, 0, 0), grows={"2": 5})
    seen = only(monkeypatch, links=(FakeLink(), worn, FakeLink(active=False)))
    assert [link.active for link in seen.nvlinks] == [True, True, False]
    assert seen.nvlinks[0].errors == {}
    assert seen.nvlinks[1].errors == {"recovery": 3, "crc_flit": 75}
    assert seen.nvlinks[1].growing == {"crc_flit": 5}


def test_links_of_blackwell_count_by_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    worn = FakeLink(errors=None, fields={219: 12, 221: 0, 214: 1}, grows={"219": 4})
    fake = FakeDriver(version="580.105.08", cuda=13000, gpus=(b200(links=(worn,)),))
    (link,) = read(monkeypatch, fake).gpus[0].nvlinks
    assert link.errors == {"effective_errors": 16, "recovery_failed": 1}
    assert link.growing == {"effective_errors": 4}


def test_remote_ends_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    bridge = fake_links(1, remote_type=0, remote_bus_id="00010001:AF:00.0")
    (link,) = only(monkeypatch, links=bridge).nvlinks
    assert (link.remote, link.remote_bus_id) == ("gpu", "10001:af:00.0")


@pytest.mark.parametrize(("code", "said"), [(1, "gpu reset"), (6, "bus reset"), (9, "unknown (9)")])
def test_recovery_actions(code: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert only(monkeypatch, fields={230: (1, code)}).recovery_action == said


@pytest.mark.parametrize("newest", [1, 2, 3])
def test_the_newest_call_for_the_fabric_is_taken(
    newest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fabric = FakeFabric(state=3, status=23, clique=7, health_mask=0x6A, summary=2)
    fake = FakeDriver(
        version="580.105.08", cuda=13000, gpus=(gpu(fabric=fabric),), newest_fabric=newest
    )
    seen = read(monkeypatch, fake).gpus[0].fabric
    assert seen is not None
    assert (seen.state, seen.status, seen.clique) == ("completed", "insufficient resources", 7)
    assert seen.health_mask == (None if newest == 1 else 0x6A)
    assert seen.unhealthy == (() if newest == 1 else ("access timeout",))
    assert seen.summary == ("unhealthy" if newest == 3 else "")


def test_holders_are_described_where_they_can_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "holdfast.system.nvidia.gpu_holders._is_the_drivers", lambda pid, minor: True
    )
    me, gone = os.getpid(), 4_190_000
    seen = only(monkeypatch, processes=((me, 3 << 30), (gone, None), (me, 1 << 30)))
    assert not isinstance(seen.holders, Unread)
    by_pid = {holder.pid: holder for holder in seen.holders}
    assert by_pid[me].memory == 4 << 30  # in two parts of the GPU
    assert "python" in by_pid[me].command
    assert by_pid[me].user
    assert (by_pid[gone].memory, by_pid[gone].command) == (None, "")


def test_a_strangers_number_is_not_taken_for_a_process_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a container the driver's numbers are those of the machine."""
    monkeypatch.setattr("holdfast.system.proc.FIRST_PID_NAMESPACE", "pid:[1]")
    seen = only(monkeypatch, processes=((os.getpid(), 1 << 30),))
    assert not isinstance(seen.holders, Unread)
    assert [(holder.pid, holder.command) for holder in seen.holders] == [(os.getpid(), "")]


def test_holders_that_the_driver_does_not_list(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = ("Compute", "MPSCompute", "Graphics")
    calls = [f"nvmlDeviceGet{kind}RunningProcesses_v{n}" for kind in kinds for n in (2, 3)]
    assert isinstance(only(monkeypatch, refusals=dict.fromkeys(calls, 3)).holders, Unread)


def test_parts_of_a_gpu_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    (seen,) = read(monkeypatch, profiles.with_mig()).gpus
    assert seen.mig_devices == a_few_parts()
    assert only(monkeypatch).mig_devices is None


def a_few_parts() -> tuple[str, ...]:
    return profiles.with_mig().gpus[0].mig_uuids


def test_an_error_of_one_call_costs_one_fact(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = dict.fromkeys(["nvmlDeviceGetPowerUsage", "nvmlDeviceGetMemoryInfo_v2"], 999)
    seen = only(monkeypatch, refusals=codes)
    assert (seen.power, seen.memory_reserved) == (None, None)
    assert seen.memory_used == 480 << 20
    assert seen.power_limit == 700.0


def test_facts_travel_as_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeDriver(version="1.2", cuda=13000, gpus=(a100(), a100(1)))
    facts = read(monkeypatch, fake)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(facts), type=NvidiaFacts) == facts
