"""Archives are read in place: honest ones whole, hostile ones within limits."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import struct
import tarfile
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.explain.read import archives, byte_streams
from holdfast.explain.read.byte_streams import CutShortError, FileBudget, TotalBudget
from holdfast.explain.read.inputs import Opened, sources
from tests.explain.read.packed import everything, special, tarred, zipped

Pack = Callable[[bytes], bytes]
LOG = b"[rank0]: step 1\n[rank0]: RuntimeError: no\n"
LONG = "node-1/" * 20 + "rank0.log"


def read(data: bytes) -> dict[str, bytes | str]:
    """What comes out of a packed pipe, by the name within."""
    found = everything(stdin=io.BytesIO(data))
    return {name.removeprefix("<stdin>: "): what for name, what in found.items()}


# --- honest ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_every_dialect_of_tar_is_read(kind: int) -> None:
    files = {"rank0.log": LOG, LONG: b"long name\n", "empty": b"", "x" * 99: b"y" * 512}
    assert read(tarred(files, special("folder", tarfile.DIRTYPE), kind=kind)) == files


def test_names_beyond_ascii_are_read() -> None:
    assert read(tarred({"journal-é漢.log": LOG})) == {"journal-é漢.log": LOG}
    assert read(zipped({"journal-é漢.log": LOG})) == {"journal-é漢.log": LOG}


def test_sizes_beyond_octal_are_understood() -> None:
    assert archives._number(b"\x80" + bytes(6) + (9 << 30).to_bytes(5, "big")) == 9 << 30


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_zip_is_read(tmp_path: Path, method: int) -> None:
    path = tmp_path / "logs.zip"
    path.write_bytes(zipped({"a/": b"", "a/rank0.log": LOG, "b.log": LOG * 9999}, method))
    assert everything(path) == {f"{path}: a/rank0.log": LOG, f"{path}: b.log": LOG * 9999}


def test_one_archive_may_lie_in_another_but_no_third() -> None:
    inner = zipped({"rank0.log": gzip.compress(LOG)})
    assert read(tarred({"node1.zip": inner})) == {"node1.zip: rank0.log": LOG}
    (problem,) = read(tarred({"all.tar": tarred({"node1.zip": inner})})).values()
    assert problem == "an archive in an archive in an archive: unpack it first"


def test_members_that_are_skipped_do_not_shift_the_next(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.xz"
    path.write_bytes(lzma.compress(tarred({"a": b"1" * 700, "b": LOG})))
    names = [one.name for one in sources([str(path)])]
    assert names == [f"{path}: a", f"{path}: b"]


# --- damaged --------------------------------------------------------------------------------


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_of_a_packed_file_that_is_cut_the_rest_is_read(pack: Pack) -> None:
    lines = random.Random(1).randbytes(600_000).hex().encode()
    found = everything(stdin=io.BytesIO(pack(lines)[:-1000]))
    got, problem = found["<stdin>"], found["<stdin>!"]
    assert isinstance(got, bytes)
    assert lines.startswith(got)
    assert len(got) > len(lines) // 10
    assert str(problem).endswith("the packed data ends too early")


def test_damage_in_the_middle_is_reported() -> None:
    data = bytearray(gzip.compress(LOG))
    data[-8] ^= 1  # its checksum
    assert "damaged" in str(everything(stdin=io.BytesIO(bytes(data)))["<stdin>!"])


def test_padding_after_the_end_is_no_damage() -> None:
    assert read(gzip.compress(LOG) + bytes(1024)) == {"<stdin>": LOG}


def test_a_tar_that_is_cut_gives_what_it_has() -> None:
    found = read(tarred({"a": LOG, "b": b"b" * 5000})[:-8000])
    assert found["a"] == LOG
    assert found["<stdin>"] == "the archive ends too early"


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_no_damage_makes_it_raise(data: st.DataObject) -> None:
    files = {"a": LOG, LONG: b"x" * 600}
    packed = bytearray(tarred(files) if data.draw(st.booleans()) else zipped(files))
    for _ in range(data.draw(st.integers(1, 5))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    found = read(bytes(packed[: data.draw(st.integers(0, len(packed)))]))
    assert all(isinstance(content, (str, bytes)) for content in found.values())
    assert sum(len(content) for content in found.values()) <= 2 * len(packed) + 1000, "bounded"


# --- hostile --------------------------------------------------------------------------------


def test_names_that_climb_are_labels_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = {"../../climb.log": LOG, "/etc/absolute.log": LOG}
    assert read(zipped(names)) == read(tarred(names)) == names
    assert list(tmp_path.iterdir()) == []


def test_links_and_devices_in_a_tar_are_skipped() -> None:
    found = read(
        tarred(
            {"a": LOG},
            special("passwords", tarfile.SYMTYPE, "/etc/shadow"),
            special("hard", tarfile.LNKTYPE, "/etc/shadow"),
            special("sda", tarfile.BLKTYPE),
            special("zero", tarfile.CHRTYPE),
            special("pipe", tarfile.FIFOTYPE),
        )
    )
    assert found.pop("a") == LOG
    assert len(found) == 5
    assert all(str(why).startswith("skipped: a ") for why in found.values())


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_tar_header_of_a_terabyte_is_refused(kind: bytes) -> None:
    info = special("x", kind)
    info.size = 1 << 40
    found = read(info.tobuf(tarfile.GNU_FORMAT) + bytes(4096))
    assert "hostile" in str(found["<stdin>"])


def bomb(pack: Pack, size: int) -> bytes:
    return pack(b"\n" * size)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_bomb_is_read_up_to_a_bound(pack: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_streams, "FREE", 4 << 20)
    packed = bomb(pack, 16 << 20)
    (opened,) = sources(["-"], io.BytesIO(packed))
    assert isinstance(opened, Opened)
    tracemalloc.start()
    length = 0
    while data := opened.read(1 << 20):
        length += len(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 3 << 20 <= length <= max(4 << 20, 200 * len(packed))
    assert "unpacks to more than 200 times its size" in opened.problem
    assert peak < 8 << 20


def test_so_is_a_bomb_of_many_members_and_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_streams, "FREE", 4 << 20)
    members = {f"{n}.gz": gzip.compress(bytes(1 << 20)) for n in range(20)}
    for archive in (tarred(members), zipped(members)):
        found = read(archive)
        assert sum(map(len, found.values())) <= max(4 << 20, 200 * len(archive)) + 2000
        assert any("200 times" in str(why) for why in found.values())


def test_all_files_together_have_a_bound() -> None:
    purse = TotalBudget(left=1000)
    FileBudget(500, purse).spend(900)
    with pytest.raises(CutShortError, match="one call unpacks at most"):
        FileBudget(500, purse).spend(200)


def test_what_logs_pack_to_is_within_the_bound() -> None:
    lines = b"".join(b"[rank%d]: step %d loss 2.5\n" % (n % 8, n // 8) for n in range(20_000))
    packs: tuple[Pack, ...] = (gzip.compress, bz2.compress, lzma.compress)
    for pack in packs:
        assert len(lines) / len(pack(lines)) < byte_streams.RATIO


def test_xz_that_asks_for_gigabytes_of_memory_is_refused() -> None:
    greedy = bytearray(lzma.compress(b"x"))
    at = greedy.index(b"\x21\x01") + 2
    greedy[at] = 36  # 1 GiB
    block = bytes(greedy[12:20])
    greedy[20:24] = struct.pack("<I", zlib.crc32(block))
    assert "emory" in str(everything(stdin=io.BytesIO(bytes(greedy)))["<stdin>!"])


def test_a_zip_of_millions_of_entries_is_refused() -> None:
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 9, 9, 99 << 20, 0, 0)
    (why,) = read(b"PK\3\4" + bytes(500) + end).values()
    assert "its directory is larger than 8 MiB" in str(why)


def test_what_zipfile_cannot_bound_is_not_unpacked() -> None:
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        (why,) = read(zipped({"a": LOG}, method)).values()
        assert "uncommon method" in str(why)


def test_an_encrypted_member_is_reported() -> None:
    data = bytearray(zipped({"a": LOG}))
    data[data.index(b"PK\1\2") + 8] |= 1
    assert read(bytes(data)) == {"a": "encrypted"}
