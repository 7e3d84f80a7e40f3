from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.machine import CouldNotLook, PortRanges, Resolution, Unread, rendezvous
from tests.faults.machines import a_machine, a_plan

PORTS = st.integers(1, 65535)


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("node-a", ("node-a", None)),
        ("node-a:29400", ("node-a", 29400)),
        (" 10.0.0.5:0 ", ("10.0.0.5", 0)),
        ("[fe80::1]:29400", ("fe80::1", 29400)),
        ("[fe80::1]", ("fe80::1", None)),
        ("node-a:99999", ("node-a:99999", None)),
        ("node-a:port", ("node-a:port", None)),
        ("", ("", None)),
    ],
)
def test_split_endpoint(endpoint: str, expected: tuple[str, int | None]) -> None:
    assert rendezvous.split_endpoint(endpoint) == expected


@given(st.text())
def test_no_endpoint_breaks_it(endpoint: str) -> None:
    host, port = rendezvous.split_endpoint(endpoint)
    assert len(host) <= len(endpoint)
    assert port is None or 0 <= port < 65536


@given(st.from_regex(r"[a-z][a-z0-9.-]{0,20}", fullmatch=True), st.integers(0, 65535))
def test_an_endpoint_comes_apart_as_it_was_put_together(host: str, port: int) -> None:
    assert rendezvous.split_endpoint(f"{host}:{port}") == (host, port)


def test_the_endpoint_beats_the_master_address() -> None:
    named = a_plan(master_addr="10.0.0.9", master_origin="MASTER_ADDR")
    assert rendezvous.master_host(named) == ("10.0.0.9", "MASTER_ADDR")
    both = a_plan(master_addr="10.0.0.9", master_origin="MASTER_ADDR", rdzv_endpoint="b:29400")
    assert rendezvous.master_host(both) == ("b", "rendezvous endpoint")
    assert rendezvous.master_host(a_plan()) == ("", "")


def test_addresses_of_a_host() -> None:
    name = Resolution(name="b", addresses=("10.0.0.9",), error="", seconds=0.0)
    machine = a_machine(a_plan(master_addr="b"), master_name=name)
    assert rendezvous.addresses_of(machine, "b") == ("10.0.0.9",)
    assert rendezvous.addresses_of(machine, "node-a") == ("10.0.0.5",)
    assert rendezvous.addresses_of(machine, "localhost") == ("127.0.0.1",)
    assert rendezvous.addresses_of(machine, "10.1.1.1") == ("10.1.1.1",)
    with pytest.raises(CouldNotLook, match="c was not resolved"):
        rendezvous.addresses_of(machine, "c")


@given(PORTS, PORTS, PORTS, st.integers(0, 2000))
def test_the_other_port_is_another_and_keeps_out_of_the_range(
    present: int, low: int, high: int, first: int
) -> None:
    low, high = min(low, high), max(low, high)
    ranges = PortRanges(
        ephemeral_low=low, ephemeral_high=high, reserved=(), first_unprivileged=first
    )
    port = rendezvous.other_port(a_plan(port=present), ranges)
    if port is not None:
        assert port != present
        assert port >= first
        assert not low <= port <= high


def test_a_plain_machine_is_offered_a_port_near_the_usual_one() -> None:
    machine = a_machine()
    assert rendezvous.other_port(machine.plan, machine.port_ranges) == 29600
    assert rendezvous.other_port(machine.plan, Unread(why="no /proc")) == 29600
    assert rendezvous.other_port(a_plan(port=29600), machine.port_ranges) == 29700


@pytest.mark.parametrize(
    ("origin", "nodes", "words"),
    [
        ("--port", 1, "`torchrun --master-port 29600 …`"),
        ("default", 2, "`torchrun --master-port 29600 …` on every node"),
        ("MASTER_PORT", 1, "`export MASTER_PORT=29600`"),
        ("PET_MASTER_PORT", 2, "`export PET_MASTER_PORT=29600` on every node"),
    ],
)
def test_advice_uses_the_words_of_what_named_the_port(origin: str, nodes: int, words: str) -> None:
    plan = a_plan(port_origin=origin, max_nodes=nodes)
    advice = rendezvous.choose_another_port(plan, a_machine().port_ranges)
    assert advice == f"choose another port: {words}"
