"""The structure of checkpoint files, made by hand where torch is not needed."""

from __future__ import annotations

import json
import shutil
import struct
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.system.checkpoint_structure import (
    problem_of_dcp_folder,
    problem_of_safetensors,
    problem_of_torch_file,
)


def safetensors(data: bytes, **tensors: tuple[int, int]) -> bytes:
    header: dict[str, object] = {
        name: {"dtype": "U8", "shape": [end - start], "data_offsets": [start, end]}
        for name, (start, end) in tensors.items()
    }
    header["__metadata__"] = {"format": "pt"}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


WHOLE = safetensors(b"0123456789", a=(0, 4), b=(4, 10))


def problem_of(content: bytes, folder: Path, name: str = "m.safetensors") -> str:
    path = folder / name
    path.write_bytes(content)
    look = problem_of_safetensors if name.endswith("safetensors") else problem_of_torch_file
    return look(str(path))


def test_a_whole_safetensors_file(tmp_path: Path) -> None:
    assert problem_of(WHOLE, tmp_path) == ""
    assert problem_of(safetensors(b""), tmp_path) == ""


@given(length=st.integers(0, len(WHOLE) - 1))
def test_safetensors_cut_at_any_byte(tmp_path_factory: pytest.TempPathFactory, length: int) -> None:
    assert problem_of(WHOLE[:length], tmp_path_factory.getbasetemp())


@pytest.mark.parametrize(
    "content",
    [
        WHOLE + b"more",
        struct.pack("<Q", 4) + b"null",
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 100_000) + b"[" * 100_000,
        struct.pack("<Q", 8) + b'{"a":{}}',
        struct.pack("<Q", 1 << 63) + b"{}",
    ],
)
def test_a_damaged_safetensors_header(tmp_path: Path, content: bytes) -> None:
    assert problem_of(content, tmp_path)


def large_zip(*, packed: int, data: bytes = b"hello") -> bytes:
    """One member, all its numbers in the extra field for sizes beyond 32 bits."""
    big = 0xFFFFFFFF
    local = struct.pack("<4sHHHHHIIIHH", b"PK\3\4", 45, 0, 0, 0, 33, 0x3610A686, 5, 5, 1, 0)
    extra = struct.pack("<HHQQQ", 1, 24, len(data), packed, 0)
    entry = struct.pack(
        "<4sHHHHHHIIIHHHHHII",
        *(b"PK\1\2", 45, 45, 0, 0, 0, 33, 0x3610A686, big, big, 1, len(extra), 0, 0, 0, 0, big),
    )
    table = entry + b"a" + extra
    start = len(local) + 1 + len(data)
    end = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 1, 1, len(table), start, 0)
    return local + b"a" + data + table + end


def test_sizes_beyond_32_bits_are_read(tmp_path: Path) -> None:
    assert problem_of(large_zip(packed=5), tmp_path, "m.pt") == ""
    with zipfile.ZipFile(tmp_path / "m.pt") as archive:
        assert archive.read("a") == b"hello", "the archive of this test is itself sound"
    assert "overlap" in problem_of(large_zip(packed=1 << 40), tmp_path, "m.pt")


def test_a_whole_archive_with_a_comment(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "m.pt", "w") as archive:
        archive.writestr("a/data.pkl", b"x" * 1000)
        archive.comment = b"by hand"
    assert problem_of_torch_file(str(tmp_path / "m.pt")) == ""


def test_bytes_lost_in_the_middle_are_noticed(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "m.pt", "w") as archive:
        archive.writestr("a/data.pkl", b"x" * 1000)
        archive.writestr("a/data/0", b"y" * 1000)
    content = (tmp_path / "m.pt").read_bytes()
    assert problem_of(content[:500] + content[600:], tmp_path, "m.pt")


@given(start=st.sampled_from([b"", b"PK\3\4", WHOLE[:20]]), rest=st.binary(max_size=300))
def test_any_content_gets_an_answer(
    tmp_path_factory: pytest.TempPathFactory, start: bytes, rest: bytes
) -> None:
    for name in ("any.pt", "any.safetensors"):
        assert isinstance(problem_of(start + rest, tmp_path_factory.getbasetemp(), name), str)


@given(content=st.binary(max_size=300).map(lambda rest: b"\x80\x04" + rest + b"."))
def test_any_metadata_gets_an_answer(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    folder = tmp_path_factory.mktemp("dcp")
    try:
        (folder / ".metadata").write_bytes(content)
        assert isinstance(problem_of_dcp_folder(str(folder)).words, str)
    finally:
        shutil.rmtree(folder)
