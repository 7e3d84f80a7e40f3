"""Speeds beside what links can do: healthy machines differ, and none of them is accused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.machine import Gpu, NvLink, PcieLink
from holdfast.analysis.machine.group_speed import expected, odd_ranks, slow_pairs, telling_rung
from holdfast.analysis.machine.link_speeds import board_speed, nvlink_speed, pcie_speed
from tests.check.smoke.smokes import gpu_smoke, up_to, verdict
from tests.faults.made_gpus import a_gpu, an_sxm_gpu

PAIRS = [(a, b) for b in range(8) for a in range(b)]
SXM = {rank: an_sxm_gpu(rank) for rank in range(8)}


@given(st.lists(st.floats(0.55, 1.0), min_size=len(PAIRS), max_size=len(PAIRS)))
def test_what_repeats_of_healthy_pairs_differ_by_accuses_none(shares: list[float]) -> None:
    slow = {pair: 300e9 * share for pair, share in zip(PAIRS, shares, strict=True)}
    assert slow_pairs(gpu_smoke(8, slow=slow), SXM, None) == []


@given(st.integers(0, 7), st.floats(0.01, 0.3), st.floats(0.7, 1.0))
def test_a_gpu_that_is_slow_with_all_others_is_the_odd_one(
    odd: int, share: float, noise: float
) -> None:
    slow = {
        pair: 300e9 * (share if odd in pair else noise if sum(pair) % 2 else 1.0) for pair in PAIRS
    }
    smoke = gpu_smoke(8, slow=slow)
    found = slow_pairs(smoke, SXM, None)
    assert odd_ranks(found, smoke) == [odd]
    assert {odd} == set.intersection(*({one.pair.first, one.pair.second} for one in found))


def meshed(count: int, links: int) -> dict[int, Gpu]:
    """V100s that are joined to each other directly, by so many links a pair."""
    gpus = {n: a_gpu(n, name="Tesla V100-SXM2-16GB", architecture="volta") for n in range(count)}
    return {
        n: a_gpu(
            n,
            name="Tesla V100-SXM2-16GB",
            architecture="volta",
            nvlinks=tuple(
                NvLink(index=i, active=True, remote="gpu", remote_bus_id=gpus[other].bus_id)
                for other in gpus
                if other != n
                for i in range(links)
            ),
        )
        for n in gpus
    }


def test_two_gpus_of_a_board_are_held_against_the_links_between_them_only() -> None:
    board = meshed(4, 2)
    whole = expected(board, gpu_smoke(4).links)
    assert whole is not None
    assert (whole.kind, whole.speed) == ("6 NVLinks", 6 * 20e9)
    two = expected({n: board[n] for n in (0, 1)}, gpu_smoke(2).links)
    assert two is not None
    assert (two.kind, two.speed) == ("2 NVLinks", 2 * 20e9)


def test_one_hop_through_the_host_makes_it_pcie() -> None:
    table = expected(SXM, gpu_smoke(8, way="SHM/direct/direct").links)
    assert table is not None
    assert table.kind == "PCIe 5.0 x16"


def test_what_is_not_known_is_not_expected() -> None:
    links = gpu_smoke(2).links
    assert expected({0: an_sxm_gpu(0)}, links) is None
    assert expected({}, links) is None
    assert expected(SXM, ()) is None
    unknown = {n: an_sxm_gpu(n, architecture="rubin") for n in range(2)}
    assert expected(unknown, links) is None


def test_the_table_is_nccls() -> None:
    assert nvlink_speed(an_sxm_gpu(0), 18) == 18 * 20.6e9
    bridged = a_gpu(0, architecture="ampere", nvlinks=(NvLink(index=0, active=True, remote="gpu"),))
    assert nvlink_speed(bridged, 4) == 4 * 12e9
    idle = PcieLink(width=16, width_possible=16, generation=1, generation_possible=4)
    assert pcie_speed(idle) == 24e9
    assert board_speed("NVIDIA H200") == board_speed("NVIDIA H100 80GB HBM3") == 18 * 20.6e9
    assert board_speed("NVIDIA GB200") == board_speed("NVIDIA B300 SXM6 AC")
    assert board_speed("NVIDIA B200") == pytest.approx(18 * 40.1e9)
    for name in ("NVIDIA H200 NVL", "NVIDIA H100 NVL", "NVIDIA A100 80GB PCIe", "NVIDIA L40S"):
        assert board_speed(name) is None


def test_small_and_fast_sums_tell_nothing() -> None:
    assert telling_rung(gpu_smoke(8)) is not None
    slow = verdict(up_to("nccl"))  # no more than 64 MiB, and half a second for it
    assert telling_rung(slow) is not None
    fast = [r._replace(seconds=2e-4) if r.kind == "rung" else r for r in up_to("nccl")]
    assert telling_rung(verdict(fast)) is None
