from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.machine import Gid, gid_choice
from holdfast.analysis.machine.gid_choice import GidSettings, choose
from tests.faults.machines import a_machine, settings, software

V1, V2 = "IB/RoCE v1", "RoCE v2"


def gid(index: int, address: str, kind: str) -> Gid:
    full = ipaddress.IPv6Address(f"::ffff:{address}" if "." in address else address)
    return Gid(index, full.exploded, kind)


USUAL = (
    gid(0, "fe80::a288:c2ff:fe00:1", V1),
    gid(1, "fe80::a288:c2ff:fe00:1", V2),
    gid(2, "10.1.0.5", V1),
    gid(3, "10.1.0.5", V2),
)
IPV6_ONLY = (*USUAL[:2], gid(2, "2001:db8::5", V1), gid(3, "2001:db8::5", V2))
TWO_NETWORKS = (*USUAL, gid(4, "172.16.0.5", V1), gid(5, "172.16.0.5", V2))
FOREIGN_FIRST = (*USUAL[:2], gid(2, "10.9.0.1", ""), gid(3, "10.9.0.1", ""), gid(6, "10.1.0.5", V2))


@pytest.mark.parametrize(
    ("gids", "given_settings", "index"),
    [
        (USUAL, GidSettings(), 3),
        (USUAL, GidSettings(version="2.20.5"), 0),
        (USUAL, GidSettings(version="2.21.5"), 3),
        (USUAL, GidSettings(forced=1), 1),
        (USUAL, GidSettings(forced=9), None),
        (USUAL, GidSettings(roce=1), 2),
        (USUAL[:2], GidSettings(), 0),  # no address: stays with the first, link-local
        (IPV6_ONLY, GidSettings(), 0),
        (IPV6_ONLY, GidSettings(ipv6=True), 3),
        (TWO_NETWORKS, GidSettings(), 3),
        (TWO_NETWORKS, GidSettings(within=ipaddress.ip_network("172.16.0.0/12")), 5),
        (TWO_NETWORKS, GidSettings(within=ipaddress.ip_network("192.0.2.0/24")), 0),
        (FOREIGN_FIRST, GidSettings(), 6),
        ((), GidSettings(), None),
    ],
)
def test_the_entry_that_nccl_takes(
    gids: tuple[Gid, ...], given_settings: GidSettings, index: int | None
) -> None:
    chosen = choose(gids, given_settings)
    assert (chosen.index if chosen else None) == index


def test_settings_as_nccl_reads_them() -> None:
    def read(**values: str) -> GidSettings:
        return gid_choice.settings_of(a_machine(settings=settings(**values)))

    assert read().forced is None
    assert read(NCCL_IB_GID_INDEX="-1").forced is None
    assert read(NCCL_IB_GID_INDEX="0x3").forced == 3
    assert read(NCCL_IB_ADDR_FAMILY="AF_INET6").ipv6
    assert not read(NCCL_IB_ADDR_FAMILY="inet6").ipv6
    assert read(NCCL_IB_ADDR_RANGE="10.1.2.3/8").within == ipaddress.ip_network("10.0.0.0/8")
    assert read(NCCL_IB_ADDR_RANGE="10.1.2.3").within is None
    assert read(NCCL_IB_ADDR_RANGE="ten/8").within is None
    assert read(NCCL_IB_ROCE_VERSION_NUM="1").roce == 1
    assert read().version == "2.29.7"


@pytest.mark.parametrize(
    ("version", "fails"),
    [("2.20.5", False), ("2.21.5", True), ("2.25.1", True), ("2.26.2", False), ("", False)],
)
def test_versions_that_fail_on_an_address_of_another_namespace(version: str, fails: bool) -> None:
    found = gid_choice.settings_of(a_machine(software=software(nccl=version)))
    assert found.fails_on_foreign == fails
    assert [one.index for one in gid_choice.foreign(FOREIGN_FIRST, found)] == [2, 3]


ADDRESSES = st.sampled_from(["fe80::1", "10.1.0.5", "2001:db8::5", "192.0.2.7"])
KINDS = st.sampled_from([V1, V2, ""])


@given(
    st.lists(st.tuples(ADDRESSES, KINDS), max_size=8),
    st.booleans(),
    st.sampled_from([1, 2]),
)
def test_an_address_of_the_wanted_kind_is_never_passed_over(
    table: list[tuple[str, str]], ipv6: bool, roce: int
) -> None:
    gids = [gid(n, where, kind) for n, (where, kind) in enumerate(table)]
    wanted = GidSettings(ipv6=ipv6, roce=roce)
    chosen = choose(gids, wanted)
    fitting = [
        one
        for one in gids[1:]
        if gid_choice.is_ipv6(one) == ipv6
        and not gid_choice.is_link_local(one)
        and gid_choice.roce_version(one) == roce
    ]
    assert chosen is None or chosen in gids
    if fitting:
        assert chosen is not None
        assert not gid_choice.is_link_local(chosen)
        assert gid_choice.is_ipv6(chosen) == ipv6
