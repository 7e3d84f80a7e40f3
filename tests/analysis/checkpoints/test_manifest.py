"""The manifest proves itself: no byte of it can change unseen."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.checkpoints import manifest
from holdfast.analysis.checkpoints.manifest import FileEntry, Manifest

ONE = Manifest(
    schema=manifest.SCHEMA,
    step=1200,
    epoch=3,
    world_size=4,
    kind="plain",
    saved_at=1.5,
    files=(FileEntry(name="rank-0.safetensors", size=123456, sha256=("ab" * 32,)),),
    structure="s",
    config={"lr": "0.1", "sha256": "naïve"},
    versions={"torch": "2.13"},
    data="global",
    run="",
)
TEXT = manifest.encode(ONE)


def test_it_comes_back() -> None:
    back = manifest.decode(TEXT)
    assert msgspec.structs.replace(back, sha256=ONE.sha256) == ONE
    assert manifest.encode(back) == TEXT, "sealing twice changes nothing"


@given(st.integers(0, len(TEXT) * 8 - 1))
def test_a_flipped_bit_is_seen(bit: int) -> None:
    damaged = bytearray(TEXT)
    damaged[bit // 8] ^= 1 << bit % 8
    with pytest.raises(msgspec.DecodeError):
        manifest.decode(bytes(damaged))


def test_a_size_that_is_still_good_json_is_seen() -> None:
    for old, new in (
        (b"123456", b"123457"),
        (b"1200", b"1201"),
        (b'"world_size": 4', b'"world_size": 5'),
    ):
        assert TEXT.count(old) == 1
        with pytest.raises(msgspec.DecodeError, match="its own sha256"):
            manifest.decode(TEXT.replace(old, new))


@given(st.binary() | st.integers(0, len(TEXT) - 1).map(lambda end: TEXT[:end]))
def test_anything_else_is_refused(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        manifest.decode(text)


def test_a_file_has_a_digest_for_each_piece() -> None:
    entry = FileEntry(name="a", size=25, piece_size=10, sha256=("x", "y", "z"))
    assert [(piece.start, piece.end, piece.sha256) for piece in entry.pieces()] == [
        (0, 10, "x"), (10, 20, "y"), (20, 25, "z"),
    ]  # fmt: skip
    empty = FileEntry(name="a", size=0, sha256=("x",))
    assert [(piece.start, piece.end) for piece in empty.pieces()] == [(0, 0)]


@pytest.mark.parametrize(
    ("size", "piece_size", "digests"),
    [(25, 10, 2), (25, 10, 4), (0, 10, 0), (20, 10, 3), (-1, 10, 1), (25, 0, 1), (25, -5, 5)],
)
def test_digests_that_do_not_cover_the_file_are_refused(
    size: int, piece_size: int, digests: int
) -> None:
    """Bytes without a digest would be loaded without being verified."""
    entry = FileEntry(name="a", size=size, piece_size=piece_size, sha256=("x",) * digests)
    text = manifest.encode(msgspec.structs.replace(ONE, files=(entry,)))
    with pytest.raises(msgspec.DecodeError, match="'a' do not match its size"):
        manifest.decode(text)


@pytest.mark.parametrize("size", [0, 1, 1 << 40])
def test_the_first_format_had_one_digest_for_each_file(size: int) -> None:
    """As many bytes as the file has are one piece."""
    old = msgspec.structs.replace(ONE, schema=manifest.FIRST_SCHEMA, files=())
    entry = {"name": "a", "size": size, "sha256": "ab"}
    with_entry = msgspec.structs.replace(old, files=(entry,))
    read = manifest.decode(manifest.encode(with_entry))
    assert read.files == (FileEntry(name="a", size=size, piece_size=size or 1, sha256=("ab",)),)


@pytest.mark.parametrize(
    ("name", "order"),
    [
        ("step-000000010", (10, 1)),
        ("step-000000010.2", (10, 2)),
        ("step-1234567890", (1234567890, 1)),
        ("step-000000010.", None),
        ("step-000000010.0", None),
        ("step-10", None),
        ("step-000000010-old", None),
        (".tmp-step-000000010-ab", None),
        ("damaged", None),
        ("step-" + "9" * 5000, None),  # int() of so many digits raises
    ],
)
def test_names_of_folders(name: str, order: tuple[int, int] | None) -> None:
    assert manifest.order_of(name) == order
    assert manifest.step_of(name) == (order[0] if order else None)


@given(st.integers(0, 10**12), st.integers(1, 999))
def test_names_come_back(step: int, again: int) -> None:
    assert manifest.order_of(manifest.folder_name(step, again)) == (step, again)
    assert manifest.step_of_temporary(manifest.temporary_name(step, "0f")) == step
    removed = f".tmp-{manifest.folder_name(step, again)}-0f"
    assert manifest.step_of_temporary(removed) == step


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".", "..", ".hidden", "/etc/passwd", "a\n"])
def test_no_name_leads_out_of_the_folder(name: str) -> None:
    assert not manifest.is_file_name(name)
