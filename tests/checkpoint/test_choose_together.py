"""Ranks that see a folder differently: nothing healthy is moved, nothing unread is passed over."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.analysis.checkpoints import manifest
from holdfast.analysis.checkpoints.manifest import MANIFEST
from holdfast.checkpoint import choose_together, verify
from holdfast.checkpoint.choose_together import Leader, RankDisk, follow, lies_in, sees_token
from holdfast.checkpoint.files import DISK
from holdfast.checkpoint.lock import FolderLock
from holdfast.checkpoint.message_board import MessageBoard
from holdfast.errors import EnvironmentFailure, Error, ResumeRefused
from tests.checkpoint.small_saves import save_all
from tests.checkpoint.thread_ranks import SharedMemory, ThreadRanks, job


class Hidden(type(DISK)):  # type: ignore[misc]
    """A client that does not see one name, for so many looks: as NFS with an old listing."""

    def __init__(self, name: str, looks: float = float("inf")) -> None:
        self.name, self.looks = name, looks

    def size(self, path: str) -> int:
        if os.path.basename(path) == self.name and self.looks > 0:
            self.looks -= 1
            raise FileNotFoundError(2, os.strerror(2), path)
        return int(super().size(path))


class Flipping(type(DISK)):  # type: ignore[misc]
    """A machine with bad memory: one file arrives there with another bit."""

    def __init__(self, name: str) -> None:
        self.name = name

    def chunks(self, path: str, *more: Any) -> Iterator[memoryview]:
        for chunk in super().chunks(path, *more):
            if os.path.basename(path) != self.name:
                yield chunk
            else:
                yield memoryview(bytes([chunk[0] ^ 1]) + bytes(chunk[1:]))


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "ckpts"
    for step in (10, 20):
        save_all(DISK, str(root), step)
    return root


def together(
    folder: Path, disks: list[Any], *, hosts: list[str] | None = None, accept: tuple[str, ...] = ()
) -> list[str | Error]:
    """What each rank resumes from, or fails with; rank r sees the folder through disks[r]."""
    store, size, clock = SharedMemory(), len(disks), Clock()
    lock = FolderLock(str(folder))
    lock.take()

    def view(rank: int) -> RankDisk:
        board = MessageBoard(store, rank=rank, world_size=size)
        host = hosts[rank] if hosts else f"node{rank}"
        return RankDisk(board, disks[rank], host)

    def lead() -> str:
        leader = Leader(view(0), clock=lambda: clock.now, sleep=clock.sleep)
        try:
            path = leader.choose(str(folder), lock.token, accept)
        except Error as problem:
            leader.fail(problem)
            raise
        leader.close(choose_together.Question(final=True, path=path))
        return path

    def rank(number: int) -> str | Error:
        try:
            return os.path.basename(lead() if number == 0 else follow(view(number)).path)
        except Error as problem:
            return problem

    try:
        with ThreadPoolExecutor(size) as pool:
            return list(pool.map(rank, range(size), timeout=60))
    finally:
        lock.release()


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("[!.]*"))


def read_by(rank: int, world_size: int, folder: Path) -> str:
    """A file in the share of that rank."""
    saved = manifest.decode((folder / "step-000000020" / MANIFEST).read_bytes())
    return verify.share(saved.files, rank, world_size)[0].name


BOTH = ["step-000000010", "step-000000020"]


def test_a_name_that_one_rank_misses_for_a_moment_costs_nothing(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    name = read_by(1, 3, folder)
    found = together(folder, [DISK, Hidden(name, looks=2), DISK])
    assert found == ["step-000000020"] * 3
    assert left_in(folder) == BOTH
    assert "rank 1 on node1" in capfd.readouterr().err


@pytest.mark.parametrize("blind", [0, 1])
@pytest.mark.parametrize("how", [Hidden, Flipping])
def test_what_one_machine_sees_alone_moves_nothing(how: Any, blind: int, folder: Path) -> None:
    disks: list[Any] = [DISK, DISK]
    disks[blind] = how(read_by(blind, 2, folder))
    found = together(folder, disks)
    assert left_in(folder) == BOTH
    assert all(isinstance(one, EnvironmentFailure) for one in found)
    assert f"rank {blind} on node{blind} says" in str(found[0])
    assert f"rank {1 - blind} on node{1 - blind} finds no problem" in str(found[1])


def test_damage_that_two_machines_see_is_set_aside(folder: Path) -> None:
    (folder / "step-000000020" / "rank-1.json").write_text("{")
    assert together(folder, [DISK, DISK, DISK]) == ["step-000000010"] * 3
    assert left_in(folder) == ["damaged", "step-000000010"]


def test_all_damaged_is_refused_and_left_where_it_is(folder: Path) -> None:
    for step in BOTH:
        (folder / step / "rank-0.json").unlink()
    for found in together(folder, [DISK, DISK]):
        assert isinstance(found, ResumeRefused)
        assert found.slugs == ("checkpoint-corrupt",)
        assert "none of the 2 checkpoints in" in str(found)
        assert "step-000000010: rank-0.json is missing" in str(found)
        assert "HOLDFAST_ACCEPT=fresh" in found.hint
    assert left_in(folder) == BOTH, "the next start must find the same"
    assert together(folder, [DISK, DISK], accept=("fresh",)) == ["", ""]
    assert left_in(folder) == ["damaged"]


def break_newest(folder: Path, how: str) -> Callable[[], None]:
    """Real errors, which root sees as well."""
    newest = folder / "step-000000020" / MANIFEST
    text = newest.read_bytes()
    newest.unlink()
    if how == "ELOOP":
        newest.symlink_to(MANIFEST)
    else:
        newest.symlink_to("n" * 300)

    def mend() -> None:
        newest.unlink()
        newest.write_bytes(text)

    return mend


@pytest.mark.parametrize("how", ["ELOOP", "ENAMETOOLONG"])
def test_what_cannot_be_read_now_is_never_passed_over(
    how: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    mend = break_newest(folder, how)
    for found in together(folder, [DISK, DISK]):
        assert isinstance(found, EnvironmentFailure)
        assert "cannot be read now: manifest.json" in str(found)
        assert "move it out of the folder" in found.hint
    assert capfd.readouterr().err.count("looking again for up to 60 s") == 1
    assert left_in(folder) == BOTH
    assert together(folder, [DISK, DISK], accept=("fresh",)) == ["step-000000010"] * 2
    assert left_in(folder) == BOTH, "it may be intact: it is not moved"
    mend()
    assert together(folder, [DISK, DISK]) == ["step-000000020"] * 2


def test_it_is_taken_when_the_server_is_back(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mend = break_newest(folder, "ELOOP")
    real = Clock.sleep

    def sleep(self: Clock, seconds: float) -> None:
        real(self, seconds)
        if self.now > 10 and not (folder / "step-000000020" / MANIFEST).is_file():
            mend()

    monkeypatch.setattr(Clock, "sleep", sleep)
    assert together(folder, [DISK, DISK]) == ["step-000000020"] * 2


def test_a_later_format_is_refused_with_what_to_do(folder: Path) -> None:
    path = folder / "step-000000020" / MANIFEST

    later = manifest.decode(path.read_bytes())

    path.write_bytes(
        manifest.encode(msgspec.structs.replace(later, schema="holdfast/checkpoint/9"))
    )
    [found] = together(folder, [DISK])
    assert isinstance(found, EnvironmentFailure)
    assert "was written by a newer holdfast" in str(found)
    assert "install the holdfast that wrote it" in found.hint


def test_a_folder_of_its_own_in_every_machine_is_refused_before_training(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real second folder is in test_own_disks.py: here all ranks hear why, and nothing moves."""
    real = choose_together.sees_token
    elsewhere = folder.parent / "other machine"
    shutil.copytree(folder, elsewhere)
    calls: list[str] = []

    def own_disk(path: str, token: str) -> bool:
        calls.append(path)
        return real(path if len(calls) == 1 else str(elsewhere), token)

    monkeypatch.setattr(choose_together, "sees_token", own_disk)
    for found in together(folder, [DISK, DISK]):
        assert isinstance(found, EnvironmentFailure)
        assert "each machine has a folder of its own there" in str(found)
        assert "that all machines of the job share" in found.hint


def test_the_token_is_waited_for_unless_the_disk_is_local(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    assert not sees_token(str(tmp_path), "ab", sleep=slept.append)
    assert not sees_token(str(tmp_path / "not" / "mounted"), "ab", sleep=slept.append)
    assert not slept, "on a local disk nothing will appear"
    monkeypatch.setattr(choose_together, "LOCAL", frozenset())
    lock = FolderLock(str(tmp_path))

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if sum(slept) > 3:
            lock.take()

    assert sees_token(str(tmp_path), lock.token, sleep=sleep)
    lock.release()
    assert not sees_token(str(tmp_path), "ab", sleep=slept.append)
    assert 60 <= sum(slept) < 70


@pytest.mark.parametrize(
    ("path", "inside"),
    [
        ("/c/step-000000001", True), ("/c/step-000000001.2", True), ("/c/../etc", False),
        ("/c", False), ("/etc/step-000000001", False), ("/c/step-000000001/x", False),
        ("/c/damaged", False), ("step-000000001", False),
    ],
)  # fmt: skip
def test_what_the_store_says_must_be_in_the_folder(path: str, inside: bool) -> None:
    assert lies_in("/c", path) == inside


def test_a_job_is_refused_and_starts_fresh_only_when_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def launch(steps: int) -> list[dict[str, Any]]:
        return ThreadRanks(2, monkeypatch).run(job(tmp_path, steps))

    launch(2)
    capfd.readouterr()
    (tmp_path / "step-000000002" / "rank-0.safetensors").write_bytes(b"")
    for _ in range(2):
        with pytest.raises(ResumeRefused, match=r"the only checkpoint in .* cannot be used"):
            launch(1)
    assert "no checkpoint in" not in capfd.readouterr().err
    monkeypatch.setenv("HOLDFAST_ACCEPT", "fresh")
    assert [rank["first"] for rank in launch(1)] == [0, 0]
    assert [rank["first"] for rank in launch(0)] == [1, 1]
