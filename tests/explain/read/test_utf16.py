from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.explain.gather import gather
from holdfast.explain.read import utf16

LOG = (
    "[rank1]: step 3\r\n"
    "[rank1]: Traceback (most recent call last):\r\n"
    "[rank1]: ValueError: ☃ ∞ 😀\r\n"
)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("mark", ["\ufeff", ""])
def test_a_log_is_read_in_any_order_of_bytes(encoding: str, mark: str) -> None:
    found = gather([], stdin=io.BytesIO((mark + LOG).encode(encoding)))
    (raised,) = found.raised
    assert (raised.rank, raised.kind, raised.text, raised.line.number) == (
        1,
        "ValueError",
        "☃ ∞ 😀",
        3,
    )


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 4096,  # a hole at the beginning of a log
        b"\0" * 64 + b"step 3\n" * 200,
        LOG.encode(),
        b"PK\x03\x04" + b"\0" * 50,
        bytes(range(256)) * 16,
    ],
    ids=lambda data: repr(data[:6]),
)
def test_other_bytes_are_none(data: bytes) -> None:
    assert utf16.codec(data) == ""


@given(st.text(), st.sampled_from(["utf-16-le", "utf-16-be"]), st.integers(1, 50))
def test_whatever_the_pieces_the_text_is_the_same(text: str, encoding: str, size: int) -> None:
    data = text.encode(encoding, "surrogatepass")
    read = utf16.Utf8(io.BytesIO(data), encoding)
    pieces = list(iter(lambda: read.read(size), b""))
    assert all(len(piece) <= max(size, 4) for piece in pieces)
    assert b"".join(pieces).decode() == data.decode(encoding, "replace").replace("\ufeff", "")
