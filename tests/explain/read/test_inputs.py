"""Whatever path is given: what can be read is read, and the rest is listed with the reason."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.analysis.logs.wreckage import InputSource
from holdfast.errors import ConfigError
from holdfast.explain.read import folders
from holdfast.explain.read.inputs import Opened, sources
from tests.explain.read.packed import Trickle, everything, tarred, zipped

Pack = Callable[[bytes], bytes]
LOG = b"[rank0]: step 1\n[rank0]: RuntimeError: no\n"


def put(path: Path, data: bytes = LOG) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


# --- paths ----------------------------------------------------------------------------------


def test_a_folder_is_read_in_the_order_of_people(tmp_path: Path) -> None:
    for name in ("rank10.log", "rank2.log", "attempt-0/rank1/out", "Z"):
        put(tmp_path / name)
    names = [os.path.relpath(name, tmp_path) for name in everything(tmp_path)]
    assert names == ["Z", "attempt-0/rank1/out", "rank2.log", "rank10.log"]


def test_a_path_that_does_not_exist_is_reported_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.log does not exist"):
        sources([str(put(tmp_path / "a")), str(tmp_path / "nowhere.log")])


def test_a_broken_link_is_reported_as_such(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(ConfigError, match="is a broken link"):
        sources([str(tmp_path / "link")])
    assert everything(tmp_path) == {f"{tmp_path}/link": "skipped: a broken link"}


def test_hidden_things_in_folders_are_skipped(tmp_path: Path) -> None:
    put(tmp_path / ".git/config")
    log = put(tmp_path / ".hidden.log")
    assert set(everything(tmp_path).values()) == {"skipped: hidden"}
    assert everything(log) == {str(log): LOG}, "but not when they are asked for"


def test_what_two_names_lead_to_is_read_once(tmp_path: Path) -> None:
    log = put(tmp_path / "run/a.log")
    (tmp_path / "run/latest.log").symlink_to("a.log")
    (tmp_path / "run/loop").symlink_to(tmp_path / "run")
    assert everything(tmp_path / "run", log) == {str(log): LOG}


def test_pipes_and_sockets_are_never_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "recorder0.pipe")
    monkeypatch.chdir(tmp_path)  # the name of a socket has to be short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("sock")
        found = everything(tmp_path)
    assert set(found.values()) == {"skipped: not a regular file"}
    assert everything(tmp_path / "recorder0.pipe", "/dev/zero") == {
        f"{tmp_path}/recorder0.pipe": "skipped: not a regular file",
        "/dev/zero": "skipped: not a regular file",
    }


def test_a_pipe_that_the_shell_made_is_read() -> None:
    reading, writing = os.pipe()
    os.write(writing, LOG)
    os.close(writing)
    try:
        assert everything(f"/dev/fd/{reading}") == {f"/dev/fd/{reading}": LOG}
    finally:
        os.close(reading)


@contextlib.contextmanager
def as_other_user() -> Iterator[None]:
    """Root may read everything, so for a moment we are another user."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    yield
    os.seteuid(before)


def test_what_may_not_be_read_is_reported() -> None:
    with tempfile.TemporaryDirectory() as folder:  # into pytest's own only root may look
        os.chmod(folder, 0o755)
        put(Path(folder, "a.log")).chmod(0)
        with as_other_user():
            found = everything(folder)
    assert found == {f"{folder}/a.log": "could not be opened: Permission denied"}


def test_a_folder_of_very_many_files_is_read_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "MOST_FILES", 3)
    for number in range(5):
        put(tmp_path / f"{number}.log")
    found = everything(tmp_path)
    assert len(found) == 4
    assert found[str(tmp_path)] == "only the first 3 files were read"


def test_a_folder_of_very_many_floors_is_read_in_part(tmp_path: Path) -> None:
    put(tmp_path / ("d/" * 30) / "deep.log")
    (problem,) = everything(tmp_path).values()
    assert problem == "skipped: more than 24 folders deep"


# --- stdin ----------------------------------------------------------------------------------


def test_stdin_is_read_for_a_dash_and_for_nothing(tmp_path: Path) -> None:
    log = put(tmp_path / "a.log")
    assert everything(stdin=io.BytesIO(LOG)) == {"<stdin>": LOG}
    assert everything("-", log, stdin=io.BytesIO(b"piped")) == {"<stdin>": b"piped", str(log): LOG}
    assert everything(log, stdin=io.BytesIO(b"not asked for")) == {str(log): LOG}


def test_nothing_at_all_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match="nothing to read"):
        sources([])


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_stdin_may_be_packed(pack: Pack) -> None:
    assert everything(stdin=io.BytesIO(pack(LOG))) == {"<stdin>": LOG}
    found = everything(stdin=io.BytesIO(pack(tarred({"./rank0.log": LOG}))))
    assert found == {"<stdin>: rank0.log": LOG}
    assert everything(stdin=io.BytesIO(zipped({"a": LOG}))) == {"<stdin>: a": LOG}


class Endless:
    """What is piped in never ends."""

    def read(self, count: int, /) -> bytes:
        return (b"step 1 loss 0.5\n" * (count // 16 + 1))[:count]


def test_an_endless_stdin_is_read_as_it_comes() -> None:
    (opened,) = sources(["-"], Endless())
    assert isinstance(opened, Opened)
    assert opened.peek().startswith(b"step 1")
    assert all(len(opened.read(1 << 20)) <= 1 << 20 for _ in range(20))
    assert len(opened.whole(5 << 20)) == 5 << 20
    assert opened.problem == "read up to 5 MiB"


# --- what a file is -------------------------------------------------------------------------


def test_compression_is_recognised_by_content_not_by_name(tmp_path: Path) -> None:
    log = put(tmp_path / "a.log", gzip.compress(LOG) + gzip.compress(b"second part\n"))
    lie = put(tmp_path / "b.gz", LOG)
    assert everything(log, lie) == {str(log): LOG + b"second part\n", str(lie): LOG}


@pytest.mark.parametrize("piece", range(1, 14))
@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_two_packed_streams_may_meet_anywhere(pack: Pack, piece: int) -> None:
    data = pack(LOG) + pack(b"second part\n")
    assert everything(stdin=Trickle(data, piece)) == {"<stdin>": LOG + b"second part\n"}


def test_data_of_other_kinds_is_skipped(tmp_path: Path) -> None:
    header = b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    put(tmp_path / "1.safetensors", len(header).to_bytes(8, "little") + header + bytes(99))
    put(tmp_path / "2.bin", bytes(range(256)) * 300)
    put(tmp_path / "3.pt", zipped({"w/data.pkl": b"x", "w/version": b"3", "w/data/0": b"\1"}))
    put(tmp_path / "4.7z", b"7z\xbc\xaf\x27\x1c" + bytes(30))
    put(tmp_path / "5.lz4", b"\x04\x22\x4d\x18" + bytes(30))
    assert list(everything(tmp_path).values()) == [
        "skipped: safetensors weights, not a log",
        "skipped: binary data, not a log",
        "skipped: a torch checkpoint, not a log",
        "a 7z archive: unpack it first, with `7z x`",
        "lz4 data: unpack it first, with `lz4 -d`",
    ]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes(100_000) + LOG,  # rotated under its writer
        b"\x1b[32mINFO\x1b[0m \xff\xfe" + LOG,
        "rang 3 : échec 漢字\n".encode(),
        "loss ▏▎▍ 12%|██▌  |\r".encode() * 99,
        b"\x80\x02}q\x00X\x07\x00\x00\x00version",  # a flight recorder's dump
    ],
)
def test_logs_and_dumps_are_not(tmp_path: Path, data: bytes) -> None:
    assert everything(put(tmp_path / "a", data)) == {f"{tmp_path}/a": data}


def test_a_look_at_the_beginning_takes_nothing_away(tmp_path: Path) -> None:
    data = LOG * 5_000
    found = sources([str(put(tmp_path / "a", data))])
    opened = next(found)
    assert isinstance(opened, Opened)
    assert opened.peek() == opened.peek() == data[: 64 << 10]
    assert opened.size == len(data)
    assert opened.path == f"{tmp_path}/a"
    assert opened.whole(1 << 30) == data
    assert opened.source("log", rank=3) == InputSource(
        name=f"{tmp_path}/a", kind="log", rank=3, size=len(data)
    )


def test_names_are_shown_without_escapes(tmp_path: Path) -> None:
    put(tmp_path / "rank0\x1b[31m.log")
    assert list(everything(tmp_path)) == [f"{tmp_path}/rank0.log"]


@given(
    st.binary(max_size=3000), st.sampled_from([b"", b"\x1f\x8b\x08", b"BZh91AY&SY", b"PK\x03\x04"])
)
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_no_bytes_make_it_raise(tmp_path: Path, data: bytes, magic: bytes) -> None:
    found = everything(put(tmp_path / "any", magic + data), stdin=io.BytesIO(magic + data))
    assert found
