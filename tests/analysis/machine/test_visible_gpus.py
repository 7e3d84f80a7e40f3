"""CUDA_VISIBLE_DEVICES against GPUs that are there."""

from __future__ import annotations

import os
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.machine import Gpu
from holdfast.analysis.machine.visible_gpus import seen_by_job, used_by_ranks, visible
from tests.faults.machines import a_machine, a_plan, settings
from tests.faults.made_gpus import a_gpu, nvidia

FOUR = nvidia()
UUID = [a_gpu(n).uuid for n in range(4)]
PARTS = ("MIG-aaaa-1", "MIG-aaaa-2", "MIG-bbbb-1")
MIXED = nvidia(
    a_gpu(0, mig=True, mig_devices=PARTS[:2]), a_gpu(1, mig=True, mig_devices=PARTS[2:]), a_gpu(2)
)


@pytest.mark.parametrize(
    ("value", "seen", "bad"),
    [
        (None, (0, 1, 2, 3), ""),
        ("0,1", (0, 1), ""),
        ("3,0", (3, 0), ""),
        (" 2, 1", (2, 1), ""),
        ("0,1,9,2", (0, 1), "9"),
        ("0,-1,2", (0,), "-1"),
        ("0,1,1", (), "1"),
        ('"0,1"', (), '"0'),
        ("0;1", (0,), ""),  # strtoul stops at the semicolon
        ("0,", (0,), ""),
        ("0,,1", (0,), "''"),
        ("all", (), "all"),
        ("", (), ""),
        ("-1", (), ""),
        ("NoDevFiles", (), ""),
        (UUID[2], (2,), ""),
        (f"{UUID[3]},{UUID[0]}", (3, 0), ""),
        ("GPU-0000", (), "GPU-0000"),  # the beginning of all four
        ("GPU-ffffffff-1111", (), "GPU-ffffffff-1111"),
        (f"{UUID[1]},2", (1,), "2"),
        (f"{UUID[1]},{UUID[1]}", (), UUID[1]),
    ],
)
def test_cuda_reads_from_left_to_right(value: str | None, seen: tuple[int, ...], bad: str) -> None:
    found = visible(FOUR, value)
    assert found.indices == seen
    assert found.bad == bad
    assert bool(found.bad) == bool(found.why_bad)


def test_an_entry_that_means_less_than_it_says_is_told() -> None:
    assert visible(FOUR, "0;1").odd == ("0;1",)
    assert visible(FOUR, "0, 1").odd == ()


@pytest.mark.parametrize(
    ("value", "devices"),
    [
        ("MIG-bbbb-1", [(1, "MIG-bbbb-1")]),
        ("MIG-aaaa-2,MIG-aaaa-1", [(0, "MIG-aaaa-2"), (0, "MIG-aaaa-1")]),
        (f"MIG-{UUID[0]}/7/0", [(0, f"MIG-{UUID[0]}/7/0")]),
        ("MIG-cccc", []),
        (None, [(2, "")]),
    ],
)
def test_mig_instances_are_found(value: str | None, devices: list[tuple[int, str]]) -> None:
    found = visible(MIXED, value).devices
    assert found is not None
    assert [(device.gpu, device.mig) for device in found] == devices


def test_only_instances_and_no_list_show_the_first_of_them() -> None:
    found = visible(nvidia(a_gpu(0, mig=True, mig_devices=PARTS)), None).devices
    assert found is not None
    assert [device.mig for device in found] == ["MIG-aaaa-1"]


def test_unread_instances_are_not_guessed() -> None:
    facts = nvidia(a_gpu(0, mig=True, mig_devices=None))
    assert visible(facts, None).devices is None
    assert visible(facts, "0").devices is None


def test_a_gpu_of_someone_else_is_not_counted() -> None:
    hidden = Gpu(index=1, unread="Insufficient Permissions", unread_kind="no permission")
    assert visible(nvidia(a_gpu(0), hidden, a_gpu(2)), "0,1").indices == (0, 2)


def test_ranks_take_the_first_devices() -> None:
    plan = a_plan(nproc=2, nproc_named=True)
    assert used_by_ranks(a_machine(plan)) == (0, 1)
    assert used_by_ranks(a_machine(plan, settings=settings(CUDA_VISIBLE_DEVICES="3,2,1"))) == (3, 2)
    assert used_by_ranks(a_machine(a_plan(nproc=2))) == (0, 1, 2, 3)  # 2 was only a guess


def test_which_gpu_a_number_means_is_not_known_where_they_differ() -> None:
    other = nvidia(a_gpu(0), a_gpu(1, name="NVIDIA T400"))
    chosen = settings(CUDA_VISIBLE_DEVICES="1")
    assert used_by_ranks(a_machine(nvidia=other, settings=chosen)) is None
    by_place = settings(CUDA_VISIBLE_DEVICES="1", CUDA_DEVICE_ORDER="PCI_BUS_ID")
    assert used_by_ranks(a_machine(nvidia=other, settings=by_place)) == (1,)


def test_the_environment_of_the_job_counts() -> None:
    facts = a_machine(settings=settings(CUDA_VISIBLE_DEVICES="2"))
    assert seen_by_job(facts).indices == (2,)


entries = st.sampled_from(["0", "1", "2", "3", "7", " 1", "+2", "-1", "", "x", "1gpu2", '"0'])


@given(st.lists(entries, max_size=5).map(",".join) | st.text(max_size=12))
def test_any_value_is_read_without_a_stumble(value: str) -> None:
    found = visible(FOUR, value)
    assert found.indices is not None
    assert set(found.indices) <= {0, 1, 2, 3}
    assert len(set(found.indices)) == len(found.indices)


@pytest.mark.long
@given(st.lists(entries, max_size=5).map(",".join))
def test_torch_counts_the_same(value: str) -> None:
    import torch.cuda  # noqa: PLC0415

    with mock.patch.dict(os.environ, {"CUDA_VISIBLE_DEVICES": value}):
        parsed = torch.cuda._parse_visible_devices()
    counted = next((n for n, index in enumerate(parsed) if int(str(index)) >= 4), len(parsed))
    assert len(visible(FOUR, value).indices or ()) == counted
