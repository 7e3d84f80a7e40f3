"""NCCL's choice of interfaces, by table; `python -m tools.nccl_choice` asks a real NCCL."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.machine import Address, CouldNotLook, Interface, Unread, nccl_choice
from holdfast.analysis.machine.interface_choice import ChoiceRule, InterfaceChoice
from holdfast.analysis.machine.nccl_choice import NcclSettings
from tests.faults.machines import a_loopback, a_machine, an_interface, settings

LO = a_loopback()
ETH0, ETH1 = an_interface("eth0", "10.0.0.5"), an_interface("eth1", "10.1.0.5")
IB0 = an_interface("ib0", "10.8.0.5")
DOCKER = an_interface("docker0", "172.17.0.1", kind="bridge")
VIRBR = an_interface("virbr0", "192.168.122.1", kind="bridge")
BRIDGE = an_interface("br-1a2b", "172.18.0.1", kind="bridge")
DEAD = an_interface("eth0", "10.0.0.5", running=False, state="down")


def addressed(name: str, *ips: str, **changes: Any) -> Interface:
    made = tuple(Address(ip=ip, prefix=64 if ":" in ip else 24) for ip in ips)
    return an_interface(name, addresses=made, **changes)


class Case(NamedTuple):
    interfaces: tuple[Interface, ...]
    settings: NcclSettings
    first: str
    """'eth0 10.0.0.5', or '' where NCCL fails"""
    rule: ChoiceRule
    also: tuple[str, ...] = ()
    """names that the socket transport takes beside the first"""
    passed: tuple[tuple[str, str], ...] = ()
    """interface and words of the reason, for the bootstrap"""


NEW, OLD = "2.28.9", "2.27.7"


def case(
    *interfaces: Interface,
    takes: str,
    rule: ChoiceRule,
    also: tuple[str, ...] = (),
    passed: dict[str, str] | None = None,
    version: str = NEW,
    **setting: Any,
) -> Case:
    said = NcclSettings(version=version, **setting)
    return Case(interfaces, said, takes, rule, also, tuple((passed or {}).items()))


CASES = [
    case(LO, ETH0, takes="eth0 10.0.0.5", rule=ChoiceRule.ORDINARY, passed={"lo": "comes last"}),
    case(
        LO,
        DOCKER,
        ETH0,
        ETH1,
        takes="eth0 10.0.0.5",
        rule=ChoiceRule.ORDINARY,
        also=("eth1",),
        passed={"docker0": "prefix docker comes last", "eth1": "comes after eth0"},
    ),
    case(
        LO,
        ETH0,
        IB0,
        takes="ib0 10.8.0.5",
        rule=ChoiceRule.IB_FIRST,
        passed={"eth0": "ib0 comes first", "lo": "ib0 comes first"},
    ),
    case(LO, BRIDGE, ETH0, takes="br-1a2b 172.18.0.1", rule=ChoiceRule.ORDINARY, also=("eth0",)),
    # what is left when nothing ordinary is
    case(LO, DOCKER, takes="docker0 172.17.0.1", rule=ChoiceRule.DOCKER, passed={"lo": "lo comes"}),
    case(LO, takes="lo 127.0.0.1", rule=ChoiceRule.LOOPBACK),
    case(VIRBR, LO, takes="lo 127.0.0.1", rule=ChoiceRule.LOOPBACK, passed={"virbr0": "last"}),
    case(VIRBR, takes="virbr0 192.168.122.1", rule=ChoiceRule.VIRBR),
    case(takes="", rule=ChoiceRule.VIRBR),
    # the two rules that changed in 2.28.3
    case(LO, VIRBR, ETH0, takes="eth0 10.0.0.5", rule=ChoiceRule.ORDINARY),
    case(
        LO,
        VIRBR,
        ETH0,
        takes="virbr0 192.168.122.1",
        rule=ChoiceRule.ORDINARY,
        also=("eth0",),
        version=OLD,
    ),
    case(
        LO,
        DEAD,
        ETH1,
        takes="eth1 10.1.0.5",
        rule=ChoiceRule.ORDINARY,
        passed={"eth0": "no carrier"},
    ),
    case(
        LO,
        DEAD,
        ETH1,
        takes="eth0 10.0.0.5",
        rule=ChoiceRule.ORDINARY,
        also=("eth1",),
        version=OLD,
    ),
    case(LO, DEAD, ETH1, takes="eth1 10.1.0.5", rule=ChoiceRule.ORDINARY, version=""),
    # a filter is found or fails, there is no fallback
    case(LO, ETH0, ETH1, takes="eth1 10.1.0.5", rule=ChoiceRule.NAMED, ifname="=eth1"),
    case(
        LO,
        DOCKER,
        ETH0,
        takes="lo 127.0.0.1",
        rule=ChoiceRule.NAMED,
        also=("eth0",),
        ifname="^docker0",
        passed={"docker0": "excluded by NCCL_SOCKET_IFNAME=^docker0", "eth0": "comes after lo"},
    ),
    case(LO, DOCKER, ETH0, takes="eth0 10.0.0.5", rule=ChoiceRule.NAMED, ifname="^docker,lo"),
    case(
        LO,
        ETH0,
        takes="",
        rule=ChoiceRule.NAMED,
        ifname="=eth1,=eth0",
        passed={"eth0": "does not match NCCL_SOCKET_IFNAME==eth1,=eth0"},
    ),
    case(LO, ETH0, takes="eth0 10.0.0.5", rule=ChoiceRule.NAMED, ifname="=eth0,=eth1"),
    case(LO, ETH0, takes="eth0 10.0.0.5", rule=ChoiceRule.ORDINARY, ifname="l"),  # ignored
    case(LO, ETH0, takes="", rule=ChoiceRule.NAMED, ifname="nope0"),
    case(LO, DEAD, takes="", rule=ChoiceRule.NAMED, ifname="eth0", passed={"eth0": "RUNNING"}),
    case(LO, DEAD, takes="eth0 10.0.0.5", rule=ChoiceRule.NAMED, ifname="eth0", version="2.21.5"),
    # the list is in the order of getifaddrs: all IPv4 addresses, then all IPv6
    case(
        LO,
        addressed("tun0", "2001:db8::5"),
        ETH0,
        takes="eth0 10.0.0.5",
        rule=ChoiceRule.ORDINARY,
        also=("tun0",),
        passed={"tun0": "comes after eth0"},
    ),
    case(
        LO,
        addressed("eth0", "10.0.0.5", "2001:db8::5", "fe80::5"),
        addressed("eth1", "10.1.0.5"),
        takes="eth0 2001:db8::5",
        rule=ChoiceRule.ORDINARY,
        family="AF_INET6",
        passed={"eth1": "no IPv6 address (NCCL_SOCKET_FAMILY=AF_INET6)", "lo": "IPv6"},
    ),
    case(
        addressed("tun0", "2001:db8::5"),
        LO,
        takes="lo 127.0.0.1",
        rule=ChoiceRule.LOOPBACK,
        family="AF_INET",
        passed={"tun0": "no IPv4 address"},
    ),
    case(LO, ETH0, takes="eth0 10.0.0.5", rule=ChoiceRule.ORDINARY, family="ipv4"),  # ignored
    case(
        LO, addressed("eth0"), takes="lo 127.0.0.1", rule=ChoiceRule.LOOPBACK, passed={"eth0": "no"}
    ),
    # an alias has a name of its own
    case(
        LO,
        an_interface(
            "eth0",
            addresses=(
                Address(ip="10.0.0.5", prefix=24),
                Address(ip="10.0.0.6", prefix=24),
                Address(ip="10.9.0.5", prefix=24, label="eth0:1"),
            ),
        ),
        takes="eth0 10.0.0.5",
        rule=ChoiceRule.ORDINARY,
        also=("eth0:1",),
    ),
]


@pytest.mark.parametrize(
    "case", CASES, ids=lambda c: f"{c.settings.ifname}-{c.first}-{c.rule.name}"
)
def test_nccl_takes(case: Case) -> None:
    first = nccl_choice.bootstrap_choice(case.interfaces, case.settings)
    every = nccl_choice.socket_choice(case.interfaces, case.settings)
    assert [f"{one.name} {one.address}" for one in first.taken] == [case.first][: bool(case.first)]
    assert [one.name for one in every.taken] == [*case.first.split()[:1], *case.also]
    assert first.rule is every.rule is case.rule
    assert bool(first.error) == bool(every.error) == (not case.first)
    covers_every_interface(first, case.interfaces)
    covers_every_interface(every, case.interfaces)
    said = {one.name: one.why for one in first.passed}
    assert [(n, w) for n, w in case.passed if w not in said.get(n, "")] == [], said


def covers_every_interface(choice: InterfaceChoice, interfaces: tuple[Interface, ...]) -> None:
    taken = {one.name.partition(":")[0] for one in choice.taken}
    assert taken | {one.name for one in choice.passed} == {one.name for one in interfaces}
    assert all(one.why for one in choice.passed)


def test_at_most_sixteen_interfaces_carry_data() -> None:
    many = tuple(an_interface(f"eth{n}", f"10.{n}.0.5") for n in range(18))
    every = nccl_choice.socket_choice(many, NcclSettings(version=NEW))
    assert [one.name for one in every.taken] == [f"eth{n}" for n in range(16)]
    assert [one.name for one in every.passed] == ["eth16", "eth17"]
    assert "16 at most" in every.passed[0].why


@pytest.mark.parametrize(
    ("comm_id", "name", "error"),
    [
        ("10.1.0.77:4000", "eth1", ""),  # whatever NCCL_SOCKET_IFNAME says
        ("node-b:4000", "eth1", ""),
        ("[2001:db8::77]:4000", "eth2", ""),
        ("[fe80::77%eth2]:4000", "eth2", ""),
        ("[fe80::77]:4000", "", "No usable listening interface"),  # its scope is missing
        ("192.0.2.1:4000", "", "No usable listening interface"),
        ("", "", "Invalid NCCL_COMM_ID"),
        ("[fe80::77", "", "Invalid NCCL_COMM_ID"),
        ("node-c:4000", "", "does not resolve"),
    ],
)
def test_comm_id_beats_the_filter_in_the_bootstrap(comm_id: str, name: str, error: str) -> None:
    eth2 = addressed("eth2", "2001:db8::5", "fe80::5", running=False)
    said = NcclSettings(
        ifname="=eth0",
        comm_id=comm_id,
        resolved={"node-b": ("10.1.0.9", "192.0.2.1"), "node-c": ()},
    )
    found = nccl_choice.bootstrap_choice((LO, ETH0, ETH1, eth2), said)
    assert [one.name for one in found.taken] == [name][: bool(name)]
    assert error in found.error
    assert found.rule is ChoiceRule.COMM_ID
    covers_every_interface(found, (LO, ETH0, ETH1, eth2))


def test_comm_id_is_a_hint_for_data_after_filter_and_ib() -> None:
    def takes(*interfaces: Interface, comm_id: str = "10.1.0.77:4000", **said: Any) -> str:
        settings = NcclSettings(comm_id=comm_id, **said)
        return nccl_choice.socket_choice(interfaces, settings).taken[0].name

    assert takes(LO, ETH0, ETH1) == "eth1"
    assert takes(LO, ETH0, ETH1, ifname="eth0") == "eth0"
    assert takes(LO, ETH0, IB0, ETH1) == "ib0"
    assert takes(LO, ETH0, comm_id="192.0.2.1:4000") == "eth0"


def test_a_name_that_nobody_resolved_is_not_guessed() -> None:
    with pytest.raises(CouldNotLook, match="node-x"):
        nccl_choice.bootstrap_choice((LO, ETH0), NcclSettings(comm_id="node-x:4000"))


def test_it_asks_the_facts_of_the_machine() -> None:
    machine = a_machine(
        interfaces=(LO, DOCKER, ETH0), settings=settings(NCCL_SOCKET_IFNAME="docker")
    )
    assert nccl_choice.bootstrap(machine).sentence == (
        "NCCL will use docker0 (172.17.0.1): first interface that NCCL_SOCKET_IFNAME=docker admits"
    )
    assert nccl_choice.sockets(a_machine()).sentence == (
        "NCCL will use eth0 (10.0.0.5): first interface that is not docker*, lo or virbr*"
    )
    with pytest.raises(CouldNotLook, match="no netlink"):
        nccl_choice.bootstrap(a_machine(interfaces=Unread(why="no netlink")))


NAMES = st.sampled_from(["lo", "eth0", "eth1", "ib0", "docker0", "virbr0", "br-1", "tun0"])
IPS = st.sampled_from(
    ["10.0.0.5", "10.1.0.5", "127.0.0.1", "::1", "fe80::5", "2001:db8::5", "172.17.0.1"]
)
MADE_UP = st.builds(
    lambda name, ips, running: addressed(name, *ips, running=running),
    NAMES,
    st.lists(IPS, max_size=3),
    st.booleans(),
)
VALUES = st.text(alphabet="=^,:lo eth01docker%[]fe80.:*", max_size=12)


@given(
    interfaces=st.lists(MADE_UP, max_size=5, unique_by=lambda one: one.name),
    said=st.builds(
        NcclSettings,
        version=st.sampled_from(["", OLD, NEW, "2.28", "nightly"]),
        ifname=VALUES,
        family=st.sampled_from(["", "AF_INET", "AF_INET6", "4"]),
        comm_id=st.none() | VALUES | st.builds("{}:4000".format, IPS),
    ),
)
def test_whatever_is_set_every_interface_is_taken_or_passed_over(
    interfaces: list[Interface], said: NcclSettings
) -> None:
    for choose in (nccl_choice.bootstrap_choice, nccl_choice.socket_choice):
        try:
            choice = choose(interfaces, said)
        except CouldNotLook:
            assert said.comm_id  # only a name in it that was not resolved
            continue
        covers_every_interface(choice, tuple(interfaces))
        assert bool(choice.error) == (not choice.taken)
        assert len(choice.taken) <= (1 if choice.library == "NCCL bootstrap" else 16)
        assert choice.sentence
        assert choice.evidence.quote
