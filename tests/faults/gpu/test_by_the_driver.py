"""From NVML's answers to what the user reads: one broken GPU on a board of eight."""

from __future__ import annotations

import os

import msgspec
import pytest

from holdfast.analysis.machine import NvidiaFacts
from holdfast.catalogue import by_slug
from holdfast.system.nvidia.driver import read_driver
from tests.fakes.nvml import profiles
from tests.fakes.nvml.install import install
from tests.fakes.nvml.state import UINT, FakeDriver, FakeLink
from tests.faults.machines import a_machine

RECOVERY_ACTION = 230
REPLAY = "0"
GIB = 1 << 30


def board() -> FakeDriver:
    return profiles.hgx_h100()


def links(*changed: FakeLink) -> tuple[FakeLink, ...]:
    own = board().gpus[3].links
    return (*own[: len(own) - len(changed)], *changed)


def said(monkeypatch: pytest.MonkeyPatch, driver: FakeDriver) -> list[str]:
    install(monkeypatch, driver)
    nvidia = read_driver()
    assert isinstance(nvidia, NvidiaFacts)
    slugs = ("gpu-hardware", "gpu-occupied", "device-ordinal", "duplicate-gpu")
    found = [f for slug in slugs for f in by_slug(slug).ask_check(a_machine(nvidia=nvidia))]
    return [f"{f.status.value}: {f.summary}" for f in found if f.status.concern]


def test_everything_that_is_wrong_with_one_gpu_is_said_of_it_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = board().gpus[3]
    broken = profiles.changed(
        board(),
        3,
        fields={**own.fields, RECOVERY_ACTION: (UINT, 1)},
        ecc_errors=(7, 2, 7, 2),
        remapped=(0, 8, 1, 1),
        clock_reasons=0x48,
        pcie=(8, 16, 5, 5),
        power_limit=300_000,
        links=links(FakeLink(grows={REPLAY: 4}), FakeLink(active=False)),
        processes=((os.getpid(), 60 * GIB),),
        memory_used=60 * GIB,
    )
    words = said(monkeypatch, broken)
    assert all("GPU 3" in one for one in words), words
    for wanted in (
        "error: GPU 3: needs a recovery action, says the driver: gpu reset",
        "error: GPU 3: could not replace a broken row of its memory",
        "warning: GPU 3: had 2 memory errors that ECC could not correct",
        "warning: GPU 3: has slowed itself down: it is too hot",
        "warning: GPU 3: has NVLinks whose errors grow",
        "warning: GPU 3: has 17 of 18 NVLinks up",
        "warning: GPU 3: is attached by PCIe x8 gen 5",
        "warning: GPU 3: may take only 300 W, its equals 700 W",
        "note: GPU 3: repairs its memory at the next reset",
        "warning: other processes hold 60 GiB of ",
    ):
        assert any(one.startswith(wanted) for one in words), (wanted, words)


def test_a_lost_gpu_leaves_the_others_readable(monkeypatch: pytest.MonkeyPatch) -> None:
    words = said(monkeypatch, profiles.lost_gpu())
    assert words == ["error: GPU 3: does not answer its driver: GPU is lost"]


def test_a_board_that_lost_a_switch_is_found_though_all_its_gpus_are_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    down = links(*(FakeLink(active=False) for _ in range(5)))
    gpus = tuple(msgspec.structs.replace(gpu, links=down) for gpu in board().gpus)
    words = said(monkeypatch, msgspec.structs.replace(board(), gpus=gpus))
    assert words == ["warning: GPUs 0-7: has 13 of 18 NVLinks up (down: 13-17)"]
