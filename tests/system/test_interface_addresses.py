"""What netlink says of this machine's addresses, against a second opinion."""

from __future__ import annotations

import contextlib
import socket
import struct

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.system import netlink
from holdfast.system.interface_addresses import interface_addresses, parse


def test_it_finds_what_getifaddrs_finds() -> None:
    families = (socket.AF_INET, socket.AF_INET6)
    expected = {
        (name.partition(":")[0], entry.address.partition("%")[0])
        for name, entries in psutil.net_if_addrs().items()
        for entry in entries
        if entry.family in families
    }
    assert {(one.interface, one.ip) for one in interface_addresses()} == expected


def test_where_netlink_is_forbidden_older_ways_find_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    by_netlink = set(interface_addresses())

    def forbidden(_: int) -> None:
        raise PermissionError

    monkeypatch.setattr(netlink, "connect", forbidden)
    assert set(interface_addresses()) == by_netlink


def test_loopback_has_its_whole_network() -> None:
    prefixes = {one.prefix for one in interface_addresses() if one.ip == "127.0.0.1"}
    assert prefixes == {8}


def message(family: int, prefix: int, index: int, **attributes: bytes) -> bytes:
    kinds = {"address": 1, "local": 2}
    parts = (
        struct.pack("=HH", 4 + len(value), kinds[name]) + value
        for name, value in attributes.items()
    )
    return struct.pack("=BBBBI", family, prefix, 0, 0, index) + b"".join(parts)


def test_of_a_point_to_point_link_its_own_end_counts() -> None:
    ours, theirs = socket.inet_aton("10.0.0.1"), socket.inet_aton("10.0.0.2")
    found = parse(message(socket.AF_INET, 32, 1, address=theirs, local=ours))
    assert found is not None
    assert (found.ip, found.prefix) == ("10.0.0.1", 32)


def test_an_interface_that_is_gone_has_no_address() -> None:
    assert parse(message(socket.AF_INET, 8, 1 << 30, local=socket.inet_aton("10.0.0.1"))) is None


def test_a_short_message_is_refused() -> None:
    with pytest.raises(ValueError, match="ifaddrmsg of 3 bytes"):
        parse(b"abc")


@given(st.binary(min_size=8, max_size=64))
def test_any_message_is_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(ValueError):  # an address of an odd length
        parse(data)
