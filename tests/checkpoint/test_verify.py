"""Every piece is verified by one rank, and nothing that differs is passed over."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.analysis.checkpoints.manifest import FileEntry, piece_ranges
from holdfast.checkpoint import choose, verify
from holdfast.checkpoint.files import DISK
from tests.checkpoint.small_saves import PIECE_SIZE, save_all


def entry(name: str, size: int, piece_size: int = 100) -> FileEntry:
    digests = tuple("" for _ in piece_ranges(size, piece_size))
    return FileEntry(name=name, size=size, piece_size=piece_size, sha256=digests)


@given(sizes=st.lists(st.integers(0, 2000), max_size=20), world=st.integers(1, 9))
def test_every_piece_is_verified_by_one_rank(sizes: list[int], world: int) -> None:
    entries = [entry(f"f{n}", size) for n, size in enumerate(sizes)]
    shares = [verify.share(entries, rank, world) for rank in range(world)]
    everything = [piece for each in entries for piece in each.pieces()]
    assert [piece for mine in shares for piece in mine] == everything, "and in order"
    loads = [sum(piece.end - piece.start for piece in mine) for mine in shares]
    assert max(loads) - min(loads) <= 2 * 100


def test_ddp_ranks_share_the_one_large_file() -> None:
    files = [entry("rank-0.safetensors", 8000), entry("rank-0.json", 10), entry("rank-1.json", 10)]
    for rank, pieces in ((0, range(40)), (1, range(40, 80))):
        mine = [piece for piece in verify.share(files, rank, 2) if piece.name.endswith("tensors")]
        assert [piece.start // 100 for piece in mine] == list(pieces)


def test_ranks_of_a_sharded_state_verify_mostly_their_own_file() -> None:
    files = [entry(f"rank-{n}.safetensors", 800 + 5 * n) for n in range(16)]
    for rank in range(16):
        mine = verify.share(files, rank, 16)
        own = [piece for piece in mine if piece.name == f"rank-{rank}.safetensors"]
        assert len(own) >= 7
        assert len(mine) <= 10


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return Path(save_all(DISK, str(tmp_path), 10))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_flipped_bit_is_seen_by_the_rank_that_has_it(path: Path, data: st.DataObject) -> None:
    manifest = choose.first_look(str(path)).manifest
    assert manifest
    world, threads = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 3))
    victim = data.draw(st.sampled_from(manifest.files))
    at = data.draw(st.integers(0, victim.size - 1))
    whole = (path / victim.name).read_bytes()
    (path / victim.name).write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
    try:
        found = [
            choose.verify(str(path), manifest.files, rank=rank, world_size=world, threads=threads)
            for rank in range(world)
        ]
    finally:
        (path / victim.name).write_bytes(whole)
    [problem] = [one for one in found if one]
    assert problem.why == f"the bytes of {victim.name} have changed"
    start = at // PIECE_SIZE * PIECE_SIZE
    holds = [
        (victim.name, start)
        in [(piece.name, piece.start) for piece in verify.share(manifest.files, rank, world)]
        for rank in range(world)
    ]
    assert [one is not None for one in found] == holds


@pytest.mark.parametrize("threads", [1, 3])
def test_a_file_that_grew_or_is_gone(path: Path, threads: int) -> None:
    manifest = choose.first_look(str(path)).manifest
    assert manifest
    with open(path / "rank-1.safetensors", "ab") as file:
        file.write(b"!")
    problem = choose.verify(str(path), manifest.files, threads=threads)
    assert problem is not None
    assert "rank-1.safetensors has 50 bytes instead of 49" in problem.why
    os.unlink(path / "rank-1.safetensors")
    problem = choose.verify(str(path), manifest.files, threads=threads)
    assert problem is not None
    assert problem.kind == "missing"
    shutil.rmtree(path)
    wrong = verify.first_wrong(str(path), verify.share(manifest.files, 0, 1), DISK, threads=threads)
    assert wrong is not None
    assert isinstance(wrong.error, FileNotFoundError)
