"""What Gloo makes of a value was tried with torch 2.13; NCCL's rules are read from its source."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.machine import nic_filter

HERE = ["lo", "eth0", "eth1", "eth10", "docker0", "ib0"]


@pytest.mark.parametrize(
    ("value", "admitted"),
    [
        ("eth0", ["eth0"]),
        ("eth", ["eth0", "eth1", "eth10"]),
        ("eth1", ["eth1", "eth10"]),
        ("=eth1", ["eth1"]),
        ("=eth1,eth0", ["eth0", "eth1"]),
        ("=eth0,=eth1", ["eth0"]),  # the second `=` belongs to a name that no interface has
        ("^docker,lo", ["eth0", "eth1", "eth10", "ib0"]),
        ("^docker0", ["lo", "eth0", "eth1", "eth10", "ib0"]),
        ("^docker0,^lo", ["lo", "eth0", "eth1", "eth10", "ib0"]),
        ("^=eth1", ["lo", "eth0", "eth10", "docker0", "ib0"]),
        ("=^eth1", []),
        ("eth0, eth1", ["eth0"]),
        (",eth0,,ib", ["eth0", "ib0"]),
        ("eth0:1", ["eth0"]),
        (",,", HERE),
        ("^=", []),
    ],
)
def test_nccl_admits(value: str, admitted: list[str]) -> None:
    understood = nic_filter.read_nccl(value)
    assert [name for name in HERE if understood.admits(name)] == admitted


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("eth0", ("eth0",)),
        ("eth0,eth1", ("eth0", "eth1")),
        ("eth0,", ("eth0",)),
        (",eth0", ("", "eth0")),
        ("^docker0", ("^docker0",)),
        (" eth0", (" eth0",)),
    ],
)
def test_gloo_names(value: str, names: tuple[str, ...]) -> None:
    assert nic_filter.read_gloo(value) == names


@pytest.mark.parametrize(
    ("value", "ignored"), [("", True), ("e", True), ("^", True), ("lo", False)]
)
def test_short_values_are_ignored(value: str, ignored: bool) -> None:
    assert nic_filter.is_ignored(value) is ignored


names = st.lists(
    st.text(st.characters(codec="ascii", exclude_characters="^=,:"), min_size=1), min_size=1
)


@given(st.text())
def test_any_value_can_be_read(value: str) -> None:
    understood = nic_filter.read_nccl(value)
    assert all(name and "," not in name for name in understood.names)
    assert all("," not in name for name in nic_filter.read_gloo(value))


@given(st.booleans(), st.booleans(), names)
def test_nccl_reads_back_what_was_written(exclude: bool, exact: bool, wanted: list[str]) -> None:
    written = "^" * exclude + "=" * exact + ",".join(wanted)
    assert nic_filter.read_nccl(written) == (exclude, exact, tuple(wanted))


@given(names, st.text())
def test_exclusion_is_the_opposite(wanted: list[str], interface: str) -> None:
    listed = ",".join(wanted)
    kept = nic_filter.read_nccl(listed).admits(interface)
    assert nic_filter.read_nccl("^" + listed).admits(interface) is not kept


@given(st.text())
def test_no_possible_name_holds_a_separator(name: str) -> None:
    if nic_filter.is_possible_name(name):
        assert not set(name) & set(" \t\n/:")


@pytest.mark.parametrize(
    "name", ["^eth0", "=eth0", "!lo", " eth0", "eth0/1", "'eth0'", "eth*", "10.0.0.5", "10.0", ""]
)
def test_what_no_interface_is_called(name: str) -> None:
    assert nic_filter.strange(name)


@pytest.mark.parametrize("name", ["eth0", "eno1.100", "br-1a2b", "bond0", "100g", "lo"])
def test_what_an_interface_may_be_called(name: str) -> None:
    assert nic_filter.strange(name) == ""


@given(st.text())
def test_an_exclusion_can_be_fixed(value: str) -> None:
    fixed = nic_filter.read_nccl(nic_filter.excluding_loopback(nic_filter.read_nccl(f"^{value}")))
    assert fixed.exclude
    assert not fixed.admits("lo")
