"""Several threads write one file: every byte in its place, every digest that of its piece."""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.checkpoint import pieces
from holdfast.checkpoint.files import DISK, OpenFile, PieceDigests
from holdfast.checkpoint.parts import SaveControl, SaveError
from holdfast.checkpoint.pieces import write_pieces
from tests.checkpoint.crashing_files import Crash, CrashingFiles
from tests.checkpoint.small_saves import Bytes


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "CHUNK", 3)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.binary(max_size=200), piece=st.integers(1, 50), threads=st.integers(1, 4))
def test_whatever_the_sizes(tmp_path: Path, text: bytes, piece: int, threads: int) -> None:
    file = DISK.create(str(tmp_path / "file"))
    control = SaveControl(threads=threads, piece_size=piece)
    digests = write_pieces(file, Bytes("file", text), control)
    file.close()
    assert (tmp_path / "file").read_bytes() == text
    starts = range(0, max(len(text), 1), piece)
    assert digests == tuple(hashlib.sha256(text[at : at + piece]).hexdigest() for at in starts)


@given(chunks=st.lists(st.binary(max_size=40)), piece=st.integers(1, 50))
def test_bytes_in_order_have_the_same_digests(chunks: list[bytes], piece: int) -> None:
    digests = PieceDigests(piece)
    for chunk in chunks:
        digests.update(memoryview(chunk))
    file = CrashingFiles().create("/file")
    control = SaveControl(piece_size=piece)
    assert digests.hexdigests() == write_pieces(file, Bytes("file", b"".join(chunks)), control)


class Failing:
    """A file of a disk that is full from some place on."""

    def __init__(self, file: OpenFile, full_at: int) -> None:
        self._file, self._full_at = file, full_at
        self.fsync, self.close = file.fsync, file.close

    def write(self, data: memoryview, at: int = 0) -> None:
        if at >= self._full_at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "file")
        self._file.write(data, at)


@pytest.mark.parametrize("threads", [1, 3])
def test_the_first_error_ends_the_writing_of_all(threads: int) -> None:
    asked: list[int] = []
    control = SaveControl(
        threads=threads, piece_size=10, check_wanted=lambda: asked.append(threading.get_ident())
    )
    file = Failing(CrashingFiles().create("/file"), full_at=30)
    with pytest.raises(OSError, match="No space left"):
        write_pieces(file, Bytes("file", b"x" * 100_000), control)
    assert len(asked) < 5000, "the rest is not tried"


@pytest.mark.parametrize("threads", [1, 3])
def test_a_save_that_is_not_wanted_any_more_ends(threads: int) -> None:
    inside, together = threading.Lock(), []

    def check_wanted() -> None:
        if not inside.acquire(blocking=False):
            together.append(1)
            return
        try:
            if file_size() > 60:
                raise SaveError("rank 0 gave up this save", "/file")
        finally:
            inside.release()

    files = CrashingFiles()
    file = files.create("/file")

    def file_size() -> int:
        return len(files._file("/file").data)

    control = SaveControl(threads=threads, piece_size=10, check_wanted=check_wanted)
    with pytest.raises(SaveError, match="gave up"):
        write_pieces(file, Bytes("file", b"x" * 1000), control)
    assert not together, "it polls descriptors: one thread at a time"


def test_a_machine_that_stops_stops_all_threads() -> None:
    files = CrashingFiles(stop=7)
    control = SaveControl(threads=3, piece_size=10)
    with pytest.raises(Crash):
        write_pieces(files.create("/file"), Bytes("file", b"x" * 1000), control)
