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
    files=(FileEntry(name="rank-0.safetensors", size=123456, sha256="ab" * 32),),
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
