"""What the rounds without NCCL's faster transports mean."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.analysis.machine import Smoke, SmokeRound
from holdfast.check.smoke import transports
from tests.check.smoke.smokes import (
    WORLD,
    a_smoke,
    channels,
    done,
    error,
    failure,
    gpu_smoke,
    late,
    up_to,
    verdict,
)

SHM, NET = "SHM/direct/direct", "NET/Socket/0"
RANKS = range(WORLD)


def hung() -> Smoke:
    """NCCL connected by P2P, and no sum ever ended."""
    records = [*up_to("gloo"), *channels(WORLD, "P2P/CUMEM"), *(late(r, "nccl") for r in RANKS)]
    return verdict(records)


def wrong() -> Smoke:
    records = [*up_to("gloo"), *channels(WORLD, "P2P/CUMEM")]
    for rank in RANKS:
        rung = next(r for r in up_to("nccl", [rank]) if (r.kind, r.stage) == ("rung", "nccl"))
        records += [rung._replace(correct=False, text="element 7: got 1, expected 2")]
        records += [done(rank, "nccl")]
    return verdict(records)


def passed(name: str, way: str) -> SmokeRound:
    return transports.round_of(name, gpu_smoke(way=way))


def refused(name: str) -> SmokeRound:
    said = "RuntimeError: NCCL error: unhandled system error"
    return transports.round_of(name, verdict([*up_to("gloo"), error(0, "nccl", said)]))


@pytest.mark.parametrize("broken", [hung(), wrong()])
def test_what_passes_without_p2p_only_is_p2ps_fault(broken: Smoke) -> None:
    before = failure(broken)
    smoke = transports.conclude(broken, [passed("shm", SHM), passed("net", NET)])
    told = failure(smoke)
    assert told.cause == "p2p-acs-iommu"
    assert told.reason.startswith(before.reason)
    assert "with NCCL_P2P_DISABLE=1 NCCL_NVLS_ENABLE=0 the same ranks passed (SHM" in told.reason
    assert "NCCL_P2P_DISABLE=1" in told.fix


def test_what_fails_every_way_is_not_p2ps_fault() -> None:
    smoke = transports.conclude(hung(), [refused("shm"), refused("net")])
    assert failure(smoke) == failure(hung())


def test_what_fails_after_all_sums_is_not_p2ps_fault_by_rounds_of_sums() -> None:
    records = [r for r in up_to("nccl") if (r.kind, r.stage) != ("done", "nccl")]
    stuck = verdict([*records, *channels(WORLD, "P2P/CUMEM"), *(late(r, "nccl") for r in RANKS)])
    assert transports.conclude(stuck, [passed("shm", SHM)]).stages == stuck.stages


def test_a_round_that_took_p2p_all_the_same_proves_nothing() -> None:
    smoke = transports.conclude(hung(), [passed("shm", "P2P/CUMEM")])
    assert failure(smoke) == failure(hung())


def test_a_failure_that_has_a_name_keeps_it() -> None:
    named = "DistBackendError: NCCL error: Bootstrap : no socket interface found"
    smoke = verdict([*up_to("gloo"), error(0, "nccl", named)])
    assert failure(smoke).cause == "nic-name-missing", failure(smoke)
    assert "a reason of its own" in transports.why_no_rounds(smoke)
    assert transports.conclude(smoke, [passed("shm", SHM)]).stages == smoke.stages


def test_rounds_need_nccl_and_two_ranks() -> None:
    assert "not used" in transports.why_no_rounds(a_smoke())
    assert transports.why_no_rounds(gpu_smoke(1))
    assert not transports.why_no_rounds(gpu_smoke(2))
    assert not transports.why_no_rounds(hung())


@pytest.mark.parametrize(
    ("way", "shm", "net"),
    [("P2P/CUMEM", True, True), (SHM, False, True), (NET, False, False)],
)
def test_a_round_is_left_out_where_nccl_took_that_way_already(
    way: str, shm: bool, net: bool
) -> None:
    links = gpu_smoke(way=way).links
    assert bool(transports.why_left_out("shm", links, shared_gpus=False)) is not shm
    assert bool(transports.why_left_out("net", links, shared_gpus=False)) is not net
    assert not transports.why_left_out("net", links, shared_gpus=True)


def test_a_round_whose_ranks_do_not_start_says_nothing_about_a_transport() -> None:
    seen = transports.round_of("shm", verdict([*up_to("start"), error(0, "store", "no")]))
    assert seen.status == "skipped"
    assert "stage 'store' failed" in seen.reason


def test_pairs_count_once_and_by_the_slower_end() -> None:
    smoke = gpu_smoke(4, pair_speed=100e9, slow={(1, 2): 10e9})
    assert len(smoke.pairs) == 6
    speeds = {(p.first, p.second): round(p.bandwidth / 1e9) for p in smoke.pairs}
    assert speeds[1, 2] == 10
    assert set(speeds.values()) == {10, 100}


def test_a_pair_that_brings_wrong_data_fails_the_stage() -> None:
    good = gpu_smoke(4)
    assert msgspec.structs.replace(good, rounds=()).stage("nccl").status == "ok"  # type: ignore[union-attr]
    bad = up_to("gloo")[0]._replace(
        kind="pair", stage="nccl", peer=3, size=1, seconds=1.0, correct=False, text="element 0"
    )
    failed = failure(gpu_smoke(4, more=[bad]))
    assert "what rank 3 sent arrived wrong on rank 0" in failed.reason
