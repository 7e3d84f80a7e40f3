"""Where Gloo or NCCL would take a wrong interface, ranks are told a better one; by table."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.analysis.machine import Resolution
from holdfast.run.nodes.rank_interfaces import choose, with_settings
from tests.faults.machines import a_loopback, a_machine, an_interface, settings

LO, ETH0 = a_loopback(), an_interface()
ETH1 = an_interface("eth1", "10.1.0.5")
DOCKER = an_interface("docker0", "172.17.0.1", kind="bridge")
IB = an_interface("ib0", "10.2.0.5")
GPUS = ("/dev/nvidia0",)
GLOO, NCCL = "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"


def named(*addresses: str) -> Resolution:
    return Resolution(name="node-a", addresses=addresses, error="", seconds=0.001)


TWO = {"interfaces": (LO, ETH0, ETH1), "own_name": named("10.0.0.5")}


@pytest.mark.parametrize(
    ("machine", "towards", "expected"),
    [
        ({}, "10.0.0.5", {}),
        ({"own_name": named("127.0.1.1")}, "10.0.0.5", {GLOO: "eth0"}),
        ({"own_name": named()}, "10.0.0.5", {GLOO: "eth0"}),
        (TWO, "10.1.0.5", {GLOO: "eth1"}),
        ({**TWO, "accelerators": GPUS}, "10.1.0.5", {GLOO: "eth1", NCCL: "=eth1"}),
        ({**TWO, "accelerators": GPUS}, "10.0.0.5", {}),
        ({"interfaces": (LO, DOCKER, ETH0), "accelerators": GPUS}, "10.0.0.5", {}),
        # InfiniBand first is NCCL's own good choice
        ({"interfaces": (LO, ETH0, IB), "accelerators": GPUS}, "10.0.0.5", {}),
        # launchers on one machine
        ({"own_name": named("127.0.1.1")}, "127.0.0.1", {}),
        ({"own_name": named("127.0.1.1")}, "", {}),
        # never what the user set
        ({**TWO, "settings": settings(GLOO_SOCKET_IFNAME="eth0")}, "10.1.0.5", {}),
        (
            {**TWO, "settings": settings(NCCL_SOCKET_IFNAME="eth0"), "accelerators": GPUS},
            "10.1.0.5",
            {GLOO: "eth1"},
        ),
    ],
)
def test_ranks_get_the_interface_that_works(
    machine: dict[str, Any], towards: str, expected: dict[str, str]
) -> None:
    assert choose(a_machine(**{"accelerators": (), **machine}), towards).settings == expected


@pytest.mark.parametrize(
    ("value", "words"),
    [("lo", "is loopback, which no other node can reach"), ("eth7", "matches no usable interface")],
)
def test_what_the_user_set_is_kept_and_said_where_it_cannot_work(value: str, words: str) -> None:
    chosen = choose(a_machine(settings=settings(GLOO_SOCKET_IFNAME=value)), "10.0.0.5")
    assert chosen.settings == {}
    assert len(chosen.remarks) == 1
    assert chosen.remarks[0].words.startswith(f"GLOO_SOCKET_IFNAME={value} (set by you) {words}")


def test_the_remark_says_why_and_how_to_choose_another() -> None:
    (remark,) = choose(a_machine(own_name=named("127.0.1.1")), "10.0.0.5").remarks
    assert remark.slug == "hostname-misresolves"
    assert remark.words == (
        "ranks get GLOO_SOCKET_IFNAME=eth0: Gloo would announce 127.0.1.1 (this machine's own name "
        "node-a resolves to it), and the nodes reach each other by eth0; set GLOO_SOCKET_IFNAME "
        "yourself to choose another"
    )


def test_the_facts_show_what_the_ranks_get() -> None:
    facts = with_settings(a_machine(), {GLOO: "eth0"})
    setting = facts.setting(GLOO)
    assert setting
    assert (setting.value, setting.origin) == ("eth0", "holdfast run")
