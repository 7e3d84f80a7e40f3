"""What is removed is ours, on a real disk: links are left, and so is what a user put there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.checkpoint import choose, commit
from holdfast.checkpoint.choose import CheckpointProblem
from holdfast.checkpoint.files import DISK, Disk
from holdfast.checkpoint.reader_lock import hold
from holdfast.checkpoint.removal import sweep
from tests.checkpoint.small_saves import save_all


def retain(folder: Path, newest: str, *, keep: int = 1) -> str:
    return commit.retain(
        DISK, str(folder), keep=keep, keep_every=None, newest=newest, token="0badcafe"
    )


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def ckpts(tmp_path: Path) -> Path:
    return tmp_path / "ckpts"


def test_a_step_moved_to_an_archive_stays_whole_there(tmp_path: Path, ckpts: Path) -> None:
    first = Path(save_all(DISK, str(ckpts), 10, keep=9))
    archive = tmp_path / "archive" / first.name
    archive.parent.mkdir()
    first.rename(archive)
    (archive / "notes.txt").write_text("my best run")
    first.symlink_to(archive)
    before = tree(archive)
    for step in (20, 30):
        newest = save_all(DISK, str(ckpts), step, keep=1)
    assert tree(archive) == before
    assert first.is_symlink(), "it is the user's"
    assert [path.name for path in sorted(ckpts.iterdir())] == [first.name, Path(newest).name]


def test_a_link_does_not_count_as_one_that_is_kept(tmp_path: Path, ckpts: Path) -> None:
    """The disk that it leads to may be gone tomorrow."""
    save_all(DISK, str(ckpts), 10, keep=9)
    second = Path(save_all(DISK, str(ckpts), 20, keep=9))
    second.rename(tmp_path / "elsewhere")
    second.symlink_to(tmp_path / "elsewhere")
    save_all(DISK, str(ckpts), 30, keep=2)
    assert (ckpts / "step-000000010").is_dir()


def test_a_linked_temporary_folder_is_left(tmp_path: Path, ckpts: Path) -> None:
    save_all(DISK, str(ckpts), 10)
    thesis = tmp_path / "thesis"
    thesis.mkdir()
    for name in ("rank-0.json", "chapter.tex"):
        (thesis / name).write_text("years")
    link = ckpts / ".tmp-step-000000001-ab"
    link.symlink_to(thesis)
    assert sweep(DISK, str(ckpts)) == []
    save_all(DISK, str(ckpts), 20)
    assert sorted(tree(thesis)) == ["chapter.tex", "rank-0.json"]
    assert link.is_symlink()


def test_a_folder_exchanged_for_a_link_while_it_is_removed(tmp_path: Path, ckpts: Path) -> None:
    """Between the look and the removal: nothing is removed through the link."""
    save_all(DISK, str(ckpts), 10)
    other = tmp_path / "other"
    other.mkdir()
    (other / "rank-0.json").write_text("theirs")
    dead = ckpts / ".tmp-step-000000005-ab"
    dead.mkdir()
    (dead / "rank-0.json").write_text("ours")

    class Exchanged(Disk):
        def remove(self, path: str) -> None:
            if not dead.is_symlink():
                dead.rename(tmp_path / "away")
                dead.symlink_to(other)
            super().remove(path)

    assert sweep(Exchanged(), str(ckpts)) == []
    assert dead.is_symlink()
    assert tree(other) == {"rank-0.json": b"theirs"}


def test_what_a_user_put_into_a_step_stays_and_is_no_ruin(ckpts: Path) -> None:
    first = Path(save_all(DISK, str(ckpts), 10, keep=9))
    (first / "tensorboard").mkdir()
    (first / "tensorboard" / "events").write_text("curve")
    (first / "notes.txt").write_text("good")
    second = save_all(DISK, str(ckpts), 20, keep=9)
    said = retain(ckpts, second)
    assert said == (
        "notes.txt, tensorboard stay in step-000000010-other-files: not written by holdfast"
    )
    assert tree(ckpts / "step-000000010-other-files") == {
        "notes.txt": b"good",
        "tensorboard/events": b"curve",
    }
    assert sorted(os.listdir(ckpts)) == ["step-000000010-other-files", "step-000000020"]
    assert [found.step for found in choose.candidates(str(ckpts))] == [20]
    assert retain(ckpts, second) == "", "said once"


def test_a_folder_with_nothing_of_ours_is_left_as_it_is(ckpts: Path) -> None:
    mine = ckpts / "step-000000005"
    mine.mkdir(parents=True)
    (mine / "model.pt").write_text("from another tool")
    save_all(DISK, str(ckpts), 10, keep=1)
    assert tree(mine) == {"model.pt": b"from another tool"}


def test_what_a_crash_left_in_the_middle_of_a_removal(ckpts: Path) -> None:
    save_all(DISK, str(ckpts), 20)
    dead = ckpts / ".tmp-step-000000010-ab"
    dead.mkdir()
    (dead / "rank-0.json").write_text("{}")
    (dead / "notes.txt").write_text("good")
    assert sweep(DISK, str(ckpts)) == [dead.name]
    assert tree(ckpts / "step-000000010-other-files") == {"notes.txt": b"good"}


def test_files_of_ours_that_are_links_are_only_unlinked(tmp_path: Path, ckpts: Path) -> None:
    first = Path(save_all(DISK, str(ckpts), 10, keep=9))
    (first / "rank-0.safetensors").rename(tmp_path / "big")
    (first / "rank-0.safetensors").symlink_to(tmp_path / "big")
    assert retain(ckpts, save_all(DISK, str(ckpts), 20, keep=9)) == ""
    assert not first.exists()
    assert (tmp_path / "big").exists()


def test_a_step_that_is_being_read_stays_until_it_is_not(ckpts: Path) -> None:
    first = save_all(DISK, str(ckpts), 10, keep=9)
    second = save_all(DISK, str(ckpts), 20, keep=9)
    with hold(first):
        assert retain(ckpts, second) == "step-000000010 is being read"
        assert [found.step for found in choose.candidates(str(ckpts))] == [20, 10]
    assert retain(ckpts, second) == ""
    assert os.listdir(ckpts) == ["step-000000020"]


def test_the_step_of_another_user_is_left(ckpts: Path) -> None:
    class Theirs(Disk):
        def owner(self, path: str) -> int:
            return 12345 if path.endswith("10") or ".tmp-" in path else super().owner(path)

    first = save_all(DISK, str(ckpts), 10, keep=9)
    second = save_all(DISK, str(ckpts), 20, keep=9)
    (ckpts / ".tmp-step-000000005-ab").mkdir()
    said = commit.retain(Theirs(), str(ckpts), keep=1, keep_every=None, newest=second, token="ab12")
    assert said == "step-000000010 belongs to another user"
    assert os.path.exists(first)
    assert (ckpts / ".tmp-step-000000005-ab").exists()


def test_a_step_that_cannot_be_removed_keeps_its_name(ckpts: Path) -> None:
    class Refusing(Disk):
        def remove(self, path: str) -> None:
            raise PermissionError(13, "Permission denied", path)

    save_all(DISK, str(ckpts), 10, keep=9)
    second = save_all(DISK, str(ckpts), 20, keep=9)
    said = commit.retain(
        Refusing(), str(ckpts), keep=1, keep_every=None, newest=second, token="ab12"
    )
    assert said.startswith("Permission denied: ")
    assert [found.step for found in choose.candidates(str(ckpts)) if not found.problem] == [20, 10]


@pytest.mark.parametrize("link", ["step", "damaged"])
def test_nothing_is_set_aside_through_a_link(tmp_path: Path, ckpts: Path, link: str) -> None:
    step = Path(save_all(DISK, str(ckpts), 10))
    other = tmp_path / "other"
    if link == "step":
        step.rename(other)
        step.symlink_to(other)
    else:
        other.mkdir()
        (ckpts / "damaged").symlink_to(other)
    before = tree(other)
    aside = choose.set_aside(str(step), CheckpointProblem("torn"))
    assert not aside.moved
    assert aside.why_not.endswith("is a link")
    assert tree(other) == before
