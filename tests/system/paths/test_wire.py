"""What the probes send proves the key, and nothing else is ever taken for it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.system.paths import wire

KEY, OTHER = b"k" * 32, b"o" * 32
SESSION = b"sessionA"
names = st.text(max_size=80)
flips = st.integers(0, 10_000)


def flipped(packed: bytes, at: int) -> bytes:
    changed = bytearray(packed)
    changed[at % len(packed)] ^= 1 << at % 8
    return bytes(changed)


@given(st.integers(0, wire.LARGEST_MESSAGE), names, flips)
def test_a_connection_proves_key_and_name(length: int, node: str, at: int) -> None:
    hello, packed = wire.pack_hello(KEY, length)
    assert len(packed) == wire.HELLO_BYTES
    assert wire.read_hello(KEY, packed) == hello
    assert wire.read_hello(OTHER, packed) is None
    assert wire.read_hello(KEY, flipped(packed, at)) is None

    answer = wire.pack_name(KEY, hello, node)
    assert wire.read_name(KEY, hello, answer) == node.encode()[: wire.LONGEST_NAME].decode(
        errors="replace"
    )
    assert wire.read_name(OTHER, hello, answer) is None
    assert wire.read_name(KEY, hello, flipped(answer, at)) is None
    replayed, _ = wire.pack_hello(KEY, length)
    assert wire.read_name(KEY, replayed, answer) is None, "an answer to an earlier hello"


@given(st.integers(0, 255), st.integers(wire.DATAGRAM_BYTES, 9000), names, names)
def test_a_datagram_is_for_one_node_and_arrives_whole(
    number: int, length: int, node: str, other: str
) -> None:
    datagram = wire.Datagram(SESSION, number, length)
    packed = wire.pack_datagram(KEY, node, datagram)
    assert len(packed) == length
    assert wire.read_datagram(KEY, node, memoryview(packed)) == datagram
    assert wire.read_datagram(OTHER, node, memoryview(packed)) is None
    assert wire.read_datagram(KEY, node, memoryview(packed[:-1])) is None
    if other != node:
        assert wire.read_datagram(KEY, other, memoryview(packed)) is None


@given(st.integers(0, 255), st.integers(0, (1 << wire.NUMBERS) - 1), flips)
def test_the_list_of_what_came(number: int, numbers: int, at: int) -> None:
    seen = wire.Seen(SESSION, number, numbers, number)
    packed = wire.pack_seen(KEY, seen)
    assert len(packed) == wire.SEEN_BYTES <= wire.DATAGRAM_BYTES, "an answer must not amplify"
    assert wire.read_seen(KEY, packed) == seen
    assert wire.read_seen(OTHER, packed) is None
    assert wire.read_seen(KEY, flipped(packed, at)) is None


@given(st.binary(max_size=400))
def test_garbage_is_nothing(packed: bytes) -> None:
    hello, _ = wire.pack_hello(KEY, 0)
    assert wire.read_hello(KEY, packed) is None
    assert wire.read_name(KEY, hello, packed) is None
    assert wire.read_datagram(KEY, "b", memoryview(packed)) is None
    assert wire.read_seen(KEY, packed) is None


@pytest.mark.parametrize("length", [wire.LARGEST_MESSAGE + 1, 0xFFFFFFFF])
def test_an_oversized_message_is_refused_before_it_is_read(length: int) -> None:
    _, packed = wire.pack_hello(KEY, length)
    assert wire.read_hello(KEY, packed) is None


def test_what_is_proven_for_one_message_proves_no_other() -> None:
    _, hello = wire.pack_hello(KEY, 0)
    seen = wire.pack_seen(KEY, wire.Seen(SESSION, 0, 0, 0))
    assert wire.read_seen(KEY, hello) is None
    assert wire.read_hello(KEY, seen) is None
    assert wire.read_datagram(KEY, "", memoryview(seen)) is None
