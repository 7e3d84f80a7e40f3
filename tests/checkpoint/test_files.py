"""The real disk: whatever the sizes and the alignment, what is read is what was written."""

from __future__ import annotations

import errno
import mmap
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.checkpoint.files import DISK, read

MEMORY = mmap.mmap(-1, 1 << 18)
MEMORY[:] = bytes(n * n % 251 for n in range(1 << 18))
VIEW = memoryview(MEMORY).toreadonly()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.sampled_from((0, 1, 512, 4096, 5000)),
            st.sampled_from((0, 1, 511, 4095, 4096, 4097, 8192, 100_000)),
        ),
        max_size=5,
    )
)
def test_any_mixture_of_whole_and_odd_pieces(tmp_path: Path, pieces: list[tuple[int, int]]) -> None:
    """Past the page cache where it can be, through it where not: in one file."""
    path = str(tmp_path / "file")
    chunks = [VIEW[start : start + size] for start, size in pieces]
    file = DISK.create(path)
    at = 0
    for chunk in chunks:
        file.write(chunk, at)
        at += len(chunk)
    file.fsync()
    file.close()
    assert read(DISK, path) == b"".join(chunks)
    assert DISK.size(path) == sum(len(chunk) for chunk in chunks)


def test_a_file_that_was_there_is_emptied(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 10_000)
    DISK.create(str(path)).close()
    assert path.read_bytes() == b""


def test_every_error_names_its_file() -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("needs /dev/full")
    file = DISK.create("/dev/full")
    with pytest.raises(OSError, match="/dev/full") as caught:
        file.write(VIEW[:4096])
    assert caught.value.errno == errno.ENOSPC
    file.close()
    file.close()
    with pytest.raises(FileNotFoundError, match="none"):
        DISK.create("/none/file")
    with pytest.raises(FileNotFoundError, match="none"):
        read(DISK, "/none/file")


def test_folders(tmp_path: Path) -> None:
    inner = str(tmp_path / "a")
    assert DISK.make_folder(inner)
    assert not DISK.make_folder(inner)
    DISK.fsync_folder(inner)
    assert DISK.exists(inner)
    assert DISK.listdir(str(tmp_path)) == ["a"]
    DISK.remove_folder(inner)
    assert not DISK.exists(inner)


def test_what_cannot_be_known_is_not_called_absent(tmp_path: Path) -> None:
    """Else a rank whose disk fails would say that rank 0 gave up."""
    (tmp_path / "file").touch()
    assert DISK.exists(str(tmp_path / "file"))
    assert not DISK.exists(str(tmp_path / "none"))
    assert not DISK.exists(str(tmp_path / "file" / "below"))
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="levels of symbolic links"):
        DISK.exists(str(tmp_path / "loop" / "below"))
