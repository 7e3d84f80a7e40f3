"""Gloo's choice of addresses, by table; tests/check/test_gloo_binds.py compares it with torch."""

from __future__ import annotations

import pytest

from holdfast.analysis.machine import Address, Interface, MachineFacts, Resolution, gloo_choice
from holdfast.analysis.machine.interface_choice import ChoiceRule
from tests.faults.machines import a_loopback, a_machine, an_interface, settings

LO = a_loopback()
ETH0 = an_interface(
    addresses=(Address(ip="2001:db8::5", prefix=64), Address(ip="10.0.0.5", prefix=24))
)
ETH1 = an_interface("eth1", "10.1.0.5", running=False)
BARE = an_interface("eth2", addresses=())


def machine(gloo: str = "", own: tuple[str, ...] = ("10.0.0.5",)) -> MachineFacts:
    interfaces: tuple[Interface, ...] = (LO, ETH0, ETH1, BARE)
    return a_machine(
        interfaces=interfaces,
        settings=settings(GLOO_SOCKET_IFNAME=gloo),
        own_name=Resolution(name="node-a", addresses=own, error="", seconds=0.0),
    )


@pytest.mark.parametrize(
    ("facts", "taken", "rule"),
    [
        (machine("eth0"), ["eth0 10.0.0.5"], ChoiceRule.NAMED),  # IPv4 before IPv6
        (machine("eth0,eth1"), ["eth0 10.0.0.5", "eth1 10.1.0.5"], ChoiceRule.NAMED),
        (machine("eth0,"), ["eth0 10.0.0.5"], ChoiceRule.NAMED),
        (machine("e"), ["eth0 10.0.0.5"], ChoiceRule.OWN_NAME),  # too short: ignored
        (machine(), ["eth0 10.0.0.5"], ChoiceRule.OWN_NAME),
        (machine(own=("2001:db8::5", "10.0.0.5")), ["eth0 2001:db8::5"], ChoiceRule.OWN_NAME),
        (machine(own=("127.0.1.1", "10.0.0.5")), ["lo 127.0.1.1"], ChoiceRule.OWN_NAME),
        (machine(own=("192.0.2.9", "10.1.0.5")), ["eth1 10.1.0.5"], ChoiceRule.OWN_NAME),
        (machine(own=("192.0.2.9",)), ["lo 127.0.0.1"], ChoiceRule.FALLBACK),
        (machine(own=()), ["lo 127.0.0.1"], ChoiceRule.FALLBACK),
    ],
)
def test_gloo_takes(facts: MachineFacts, taken: list[str], rule: ChoiceRule) -> None:
    choice = gloo_choice.choose(facts)
    assert [f"{one.name} {one.address}" for one in choice.taken] == taken
    assert choice.rule is rule
    assert choice.error == ""
    named = {one.name for one in choice.taken} | {one.name for one in choice.passed}
    assert named == {"lo", "eth0", "eth1", "eth2"}


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("^docker0", "Unable to find address for: ^docker0"),
        ("eth9", "Unable to find address for: eth9"),
        ("eth0,eth2", "Unable to find address for: eth2"),
        ("eth0,,eth1", "interface or hostname can't be empty"),
    ],
)
def test_gloo_fails_where_one_name_is_missing(value: str, error: str) -> None:
    choice = gloo_choice.choose(machine(value))
    assert choice.taken == ()
    assert choice.error == f"`{error}`"
    assert {one.name for one in choice.passed} == {"lo", "eth0", "eth1", "eth2"}
    assert "Gloo will fail" in choice.sentence
