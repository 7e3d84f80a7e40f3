"""Whatever the driver says of GPUs is judged without a stumble, and silence is no fault."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.logs import xid_events
from holdfast.analysis.machine import (
    EccErrors,
    Gpu,
    KernelEvent,
    NvLink,
    PcieLink,
    RemappedRows,
    gpu_health,
)
from holdfast.analysis.machine.gpu_trouble import beside_the_job, shared
from tests.faults.made_gpus import a_gpu, an_sxm_gpu

small = st.integers(0, 200)
maybe = st.none() | small
links = st.builds(
    NvLink,
    index=st.integers(0, 17),
    active=st.booleans(),
    remote=st.sampled_from(["", "gpu", "switch"]),
    growing=st.dictionaries(st.sampled_from(["replay", "crc_flit", "symbol_errors"]), small),
)
gpus = st.builds(
    Gpu,
    index=st.integers(0, 15),
    name=st.sampled_from(["", "NVIDIA H200", "NVIDIA T4"]),
    unread=st.sampled_from(["", "", "", "GPU is lost"]),
    unread_kind=st.sampled_from(["", "lost", "no answer", "no permission", "error", "new"]),
    ecc=st.none() | st.builds(EccErrors, corrected=small, uncorrected=small),
    remapped=st.none()
    | st.builds(
        RemappedRows,
        correctable=small,
        uncorrectable=small,
        pending=st.booleans(),
        failed=st.booleans(),
    ),
    recovery_action=st.sampled_from([None, "", "none", "gpu reset", "unknown (9)"]),
    clock_events=st.lists(st.sampled_from(["idle", "hw slowdown", "new"])).map(tuple),
    temperature=maybe,
    slowdown_temperature=maybe,
    power=st.none() | st.floats(0, 1000),
    power_limit=st.none() | st.floats(0, 1000),
    busy=st.none() | st.integers(0, 100),
    pcie=st.none()
    | st.builds(
        PcieLink, width=small, width_possible=small, generation=small, generation_possible=small
    ),
    persistence=st.none() | st.booleans(),
    mig=st.none() | st.booleans(),
    nvlinks=st.lists(links, max_size=4).map(tuple),
)


@given(st.lists(gpus, max_size=5, unique_by=lambda gpu: gpu.index))
def test_any_answer_is_judged_and_every_trouble_says_what_to_do(found: list[Gpu]) -> None:
    for one in shared(gpu_health.troubles(found)):
        assert one.first.what
        assert one.first.meaning
        assert one.remedy
        assert "{" not in one.remedy


@given(st.lists(st.builds(Gpu, index=st.integers(0, 15), name=st.just("NVIDIA B300")), max_size=8))
def test_a_driver_that_tells_nothing_accuses_none(found: list[Gpu]) -> None:
    assert gpu_health.troubles(found) == []


@given(st.permutations(range(8)))
def test_the_odd_one_is_odd_in_any_order(order: list[int]) -> None:
    links = tuple(NvLink(index=n, active=n < 17, remote="switch") for n in range(18))
    board = [an_sxm_gpu(n, **({"nvlinks": links} if n == 5 else {})) for n in order]
    assert [one.gpu for one in gpu_health.troubles(board)] == [5]


def test_two_that_differ_accuse_neither_of_the_two() -> None:
    one, other = a_gpu(0, power_limit=300.0), a_gpu(1, power_limit=350.0)
    assert gpu_health.troubles([one, other]) == []


@given(st.text() | st.from_regex(r"NVRM: Xid \(PCI:0000:2b:00\): \d{1,5}, .*"), st.integers(1, 9))
def test_any_line_of_the_kernel_log_is_judged(text: str, count: int) -> None:
    for kind in ("xid", "sxid", "gpu"):
        event = KernelEvent(kind=kind, text=text, seconds_ago=None, count=count)
        found = xid_events.troubles([event], [a_gpu(1, recovery_action=None)])
        assert all("{" not in one.remedy for one in shared(beside_the_job(found, None)))
