"""What errors and ICMP messages mean, by table; their layouts, against garbage."""

from __future__ import annotations

import errno
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.nodes import Outcome, PortKind, RouteTo, Target
from holdfast.system.paths import icmp, neighbours
from holdfast.system.paths.icmp import IcmpError
from holdfast.system.paths.outcomes import error_words, outcome_of
from holdfast.system.paths.routes import parse as parse_route
from holdfast.system.paths.sizes import FEWEST_TRIES, MOST_TRIES, ladder, tries_needed

OWN, ROUTER = "10.0.0.1", "10.0.0.254"
TARGET = Target(node="b", interface="e0", address="10.0.0.2", port=1, kind=PortKind.MASTER)


def v4(code: int, sender: str, number: int = errno.EHOSTUNREACH) -> IcmpError:
    return IcmpError(number, icmp.ORIGIN_ICMP, 3, code, 0, sender, b"")


@pytest.mark.parametrize(
    ("number", "at_once", "message", "expected"),
    [
        (errno.ETIMEDOUT, False, None, Outcome.DROPPED),
        (errno.ECONNREFUSED, False, None, Outcome.REFUSED),
        (errno.ECONNREFUSED, True, None, Outcome.REFUSED),
        (errno.ECONNREFUSED, False, v4(3, "10.0.0.2", errno.ECONNREFUSED), Outcome.REFUSED),
        (errno.EHOSTUNREACH, False, v4(13, "10.0.0.2"), Outcome.REJECTED),
        (errno.EHOSTUNREACH, False, v4(1, ROUTER), Outcome.REJECTED),
        (errno.EHOSTUNREACH, False, v4(1, OWN), Outcome.NO_NEIGHBOUR),
        (errno.EHOSTUNREACH, False, v4(13, OWN), Outcome.REJECTED),  # our own firewall
        (errno.EHOSTUNREACH, False, None, Outcome.REJECTED),  # a kernel that tells no more
        (errno.ENETUNREACH, False, v4(0, ROUTER), Outcome.REJECTED),
        (errno.ENETUNREACH, True, None, Outcome.NO_ROUTE),
        (errno.EHOSTUNREACH, True, None, Outcome.NO_ROUTE),  # a route of the kind unreachable
        (errno.EACCES, True, None, Outcome.NO_ROUTE),  # prohibit
        (errno.EINVAL, True, None, Outcome.NO_ROUTE),  # blackhole
        (errno.EACCES, False, None, Outcome.REJECTED),  # IPv6, administratively prohibited
        (errno.EPERM, True, None, Outcome.REJECTED),  # a BPF program of the cgroup
        (errno.EADDRNOTAVAIL, True, None, Outcome.FAILED),
        (errno.EMFILE, True, None, Outcome.FAILED),
    ],
)
def test_what_a_failed_connect_means(
    number: int, at_once: bool, message: IcmpError | None, expected: Outcome
) -> None:
    assert outcome_of(number, at_once=at_once, icmp=message, local=OWN) is expected


def test_the_words_say_who_answered() -> None:
    assert error_words(errno.EHOSTUNREACH, v4(10, ROUTER)) == (
        "EHOSTUNREACH: No route to host; ICMP 'host administratively prohibited' from 10.0.0.254"
    )
    assert error_words(errno.ECONNREFUSED, None).endswith("; a reset came back")
    unknown = error_words(errno.EHOSTUNREACH, v4(15, ROUTER))
    assert unknown.endswith("ICMP 'type 3 code 15' from 10.0.0.254")


def extended_error(family: int, sender: bytes, origin: int = 2) -> bytes:
    head = struct.pack("=IBBBBII", errno.EMSGSIZE, origin, 3 if origin == 2 else 2, 4, 0, 1400, 0)
    port = struct.pack("=HH", family, 0) + (b"" if family == socket.AF_INET else bytes(4))
    return head + port + sender


def test_an_icmp_message_is_taken_apart() -> None:
    error = icmp.parse(extended_error(socket.AF_INET, bytes([10, 0, 0, 254])), b"xyz")
    assert error is not None
    assert (error.number, error.mtu, error.sender, error.payload) == (
        errno.EMSGSIZE,
        1400,
        ROUTER,
        b"xyz",
    )
    local = icmp.parse(extended_error(socket.AF_INET, bytes(4), origin=1), b"")
    assert local is None, "what this kernel itself refused"


@given(st.binary(max_size=80))
def test_odd_bytes_of_the_kernel_do_not_crash(data: bytes) -> None:
    error = icmp.parse(data, b"")
    assert error is None or error.words
    for parse in (neighbours.parse, lambda one: parse_route("a", TARGET, one)):
        try:
            answer = parse(data)
        except ValueError:
            continue
        assert isinstance(answer, (str, RouteTo))


def test_neighbours_that_do_not_answer() -> None:
    def message(state: int) -> bytes:
        head = struct.pack("=BBHiHBB", socket.AF_INET, 0, 0, 2, state, 0, 0)
        return head + struct.pack("=HH", 8, 1) + bytes([10, 0, 0, 2])

    silent = {state: neighbours.parse(message(state)) for state in (0x01, 0x02, 0x04, 0x20)}
    assert silent == {0x01: "10.0.0.2", 0x02: "", 0x04: "", 0x20: "10.0.0.2"}


@pytest.mark.parametrize(
    ("mtu", "last"),
    [
        (1500, (1476, 1492, 1500)),
        (1450, (1420, 1440, 1450)),
        (9000, (8896, 8950, 9000)),
        (65536, (9001, 9216, 65535)),
        (296, (296,)),
    ],
)
def test_the_sizes_to_try(mtu: int, last: tuple[int, ...]) -> None:
    assert ladder(mtu)[-3:] == last
    assert list(ladder(mtu)) == sorted(set(ladder(mtu)))
    assert len(ladder(mtu)) <= 64, "each has a bit in the answer"


@given(st.integers(1, 500), st.integers(1, 40))
def test_more_loss_needs_more_tries(sent: int, arrived: int) -> None:
    needed = tries_needed(max(sent, arrived), arrived)
    assert FEWEST_TRIES <= needed <= MOST_TRIES
    assert needed <= tries_needed(max(sent, arrived) + 1, arrived)


def test_tries_at_loss_as_seen() -> None:
    assert tries_needed(20, 20) == FEWEST_TRIES, "no loss: six in a row are the size"
    assert 0.3 ** tries_needed(30, 21) < 1e-6
    assert tries_needed(0, 0) == FEWEST_TRIES, "nothing arrives at all: more would tell no more"
