"""Damage of any kind on a real disk: seen, set aside with its reason, the one before is used."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.analysis.checkpoints import manifest
from holdfast.analysis.checkpoints.manifest import FileEntry
from holdfast.checkpoint import choose
from holdfast.checkpoint.choose import Candidate, CheckpointProblem
from holdfast.checkpoint.files import DISK
from tests.checkpoint.small_saves import save_all

FILES = ["manifest.json", *(f"rank-{r}.{end}" for r in (0, 1) for end in ("json", "safetensors"))]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Steps 10 and 20, both whole."""
    root = tmp_path / "ckpts"
    for step in (10, 20):
        save_all(DISK, str(root), step)
    return root


def problem_of(candidate: Candidate) -> CheckpointProblem | None:
    if candidate.problem:
        return candidate.problem
    assert candidate.manifest
    return choose.verify(candidate.path, candidate.manifest.files)


def look(folder: Path) -> list[tuple[int, str]]:
    found = [(one.step, problem_of(one)) for one in choose.candidates(str(folder))]
    return [(step, problem.why if problem else "") for step, problem in found]


def test_newest_first(folder: Path) -> None:
    (folder / "notes.txt").write_text("mine")
    (folder / ".tmp-step-000000030-ab").mkdir()
    assert look(folder) == [(20, ""), (10, "")]


def test_no_folder_is_no_checkpoint_but_no_permission_is_an_error(tmp_path: Path) -> None:
    assert choose.candidates(str(tmp_path / "none")) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        choose.candidates(str(tmp_path / "file"))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(FILES), data=st.data())
def test_flips_and_cuts_anywhere(folder: Path, name: str, data: st.DataObject) -> None:
    path = folder / "step-000000020" / name
    whole = path.read_bytes()
    damaged = bytearray(whole)
    if data.draw(st.booleans()):
        del damaged[data.draw(st.integers(0, len(whole) - 1)) :]
    else:
        for bit in data.draw(st.sets(st.integers(0, len(whole) * 8 - 1), min_size=1, max_size=3)):
            damaged[bit // 8] ^= 1 << bit % 8
    try:
        path.write_bytes(bytes(damaged))
        (newest, problem), before = look(folder)
        assert (newest, before) == (20, (10, ""))
        assert name in problem
    finally:
        path.write_bytes(whole)


def test_a_missing_a_renamed_and_a_foreign_file(folder: Path) -> None:
    newest = folder / "step-000000020"
    (newest / "notes.txt").write_text("the run with the good loss")
    assert look(folder)[0] == (20, "")
    (newest / "rank-2.json").write_text("{}")
    assert look(folder)[0] == (20, "rank-2.json is not in the manifest")
    (newest / "rank-1.json").rename(newest / "rank-2.json")
    assert look(folder)[0] == (20, "rank-1.json is missing")
    torn = problem_of(choose.candidates(str(folder))[0])
    assert torn is not None
    assert torn.kind == "missing"
    (newest / "manifest.json").unlink()
    assert look(folder)[0] == (20, "manifest.json is missing")
    shutil.rmtree(newest)
    newest.write_text("a file")
    assert look(folder) == [(20, "manifest.json is missing"), (10, "")]


def test_a_folder_under_another_steps_name(folder: Path) -> None:
    (folder / "step-000000020").rename(folder / "step-000000099")
    assert look(folder)[0] == (99, "its folder says step 99, its manifest says step 20")


def rewrite(folder: Path, **changes: object) -> None:
    path = folder / "step-000000020" / "manifest.json"
    changed = msgspec.structs.replace(manifest.decode(path.read_bytes()), **changes)
    path.write_bytes(manifest.encode(changed))


def test_a_manifest_that_leads_out_of_its_folder(folder: Path) -> None:
    rewrite(folder, files=(FileEntry(name="../step-000000010/rank-0.json", size=1, sha256=("",)),))
    assert "names a file '../step-000000010" in look(folder)[0][1]


def test_a_later_format_is_left_alone(folder: Path) -> None:
    rewrite(folder, schema="holdfast/checkpoint/9")
    newest = choose.candidates(str(folder))[0]
    assert newest.problem is not None
    assert newest.problem.kind == "newer", "not damaged: of another version"
    assert newest.problem.why.startswith("written by a newer holdfast: its format is")
    aside = choose.set_aside(str(folder / "step-000000020"), newest.problem)
    assert (newest.step, aside.moved) == (20, False)
    assert (folder / "step-000000020").is_dir()


def test_a_later_format_with_other_fields_is_left_alone(folder: Path) -> None:
    """Its seal says that it is intact: that we cannot read it is no damage."""

    class Later(msgspec.Struct):
        schema: str = "holdfast/checkpoint/9"
        shards: tuple[str, ...] = ("a",)
        sha256: str = "0" * 64

    text = msgspec.json.format(msgspec.json.encode(Later()), indent=1) + b"\n"
    sealed = text.replace(b"0" * 64, hashlib.sha256(text).hexdigest().encode())
    path = folder / "step-000000020" / "manifest.json"
    path.write_bytes(sealed)
    [newest, _] = choose.candidates(str(folder))
    assert newest.problem
    assert newest.problem.kind == "newer"
    path.write_bytes(sealed.replace(b'"a"', b'"b"'))
    assert "its bytes do not match its own sha256" in look(folder)[0][1]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_what_is_no_file_never_hangs(name: str, kind: str, folder: Path) -> None:
    path = folder / "step-000000020" / name
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    problem = problem_of(choose.candidates(str(folder))[0])
    assert problem is not None
    assert problem.file == name
    assert problem.is_damage
    entry = FileEntry(name=name, size=0, sha256=(hashlib.sha256().hexdigest(),))
    with contextlib.suppress(OSError):
        entry = msgspec.structs.replace(entry, size=path.stat().st_size)
    forged = choose.verify(str(path.parent), [entry])
    assert forged is not None, "also where the manifest names the pipe's own size"


def test_a_manifest_of_any_size_is_not_read_into_memory(folder: Path) -> None:
    path = folder / "step-000000020" / "manifest.json"
    os.truncate(path, 1 << 40)
    assert look(folder)[0] == (20, f"manifest.json has {1 << 40} bytes")


def test_set_aside_with_the_reason_and_twice(folder: Path) -> None:
    first = choose.set_aside(
        str(folder / "step-000000020"), CheckpointProblem("rank-1.json is missing", "missing")
    )
    assert first.moved
    assert Path(first.path) == folder / "damaged" / "step-000000020"
    assert (Path(first.path) / "why.txt").read_text() == "rank-1.json is missing\n"
    save_all(DISK, str(folder), 20)
    second = choose.set_aside(str(folder / "step-000000020"), CheckpointProblem("again"))
    assert Path(second.path).name == "step-000000020.2"
    assert look(folder) == [(10, "")]


class Unmovable(type(DISK)):  # type: ignore[misc]
    def __init__(self, number: int) -> None:
        self.number = number

    def rename(self, old: str, new: str) -> None:
        raise OSError(self.number, os.strerror(self.number), old)


@pytest.mark.parametrize("number", [errno.EXDEV, errno.EROFS, errno.EACCES])
def test_what_cannot_be_moved_stays_and_is_still_not_chosen(folder: Path, number: int) -> None:
    (folder / "step-000000020" / "rank-0.json").unlink()
    aside = choose.set_aside(
        str(folder / "step-000000020"), CheckpointProblem("x"), Unmovable(number)
    )
    assert not aside.moved
    assert os.strerror(number) in aside.why_not
    assert look(folder) == [(20, "rank-0.json is missing"), (10, "")]


class Unreadable(type(DISK)):  # type: ignore[misc]
    def chunks(self, path: str):  # type: ignore[no-untyped-def]
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)


def test_a_disk_that_does_not_answer_is_not_called_damage(folder: Path) -> None:
    found = choose.candidates(str(folder), Unreadable())
    why = "cannot be read now: manifest.json: Input/output error"
    assert [one.problem for one in found] == [CheckpointProblem(why, "unreadable")] * 2


class Counting(type(DISK)):  # type: ignore[misc]
    """Counts the files that are asked for their size."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def size(self, path: str) -> int:
        self.asked.append(os.path.basename(path))
        found: int = super().size(path)
        return found


def test_a_rank_asks_for_the_sizes_of_its_own_share_only(folder: Path) -> None:
    """With thousands of ranks, all files on all of them were millions of questions."""
    path = str(folder / "step-000000020")
    files = Counting()
    found = choose.first_look(path, files)
    assert found.manifest
    assert found.problem is None
    assert files.asked == ["manifest.json"]
    seen = []
    for rank in range(4):
        files.asked.clear()
        assert choose.verify(path, found.manifest.files, files, rank=rank, world_size=4) is None
        assert len(files.asked) < len(found.manifest.files)
        seen += files.asked
    assert set(seen) == {entry.name for entry in found.manifest.files}


def test_a_manifest_of_many_files_is_looked_through_once(folder: Path) -> None:
    """Each name was compared with every other: minutes for 16,384 ranks."""
    many = tuple(FileEntry(name=f"rank-{n}.json", size=0, sha256=("",)) for n in range(30_000))
    rewrite(folder, files=many)
    assert choose.first_look(str(folder / "step-000000020")).problem is None
    rewrite(folder, files=(*many, many[-1]))
    problem = choose.first_look(str(folder / "step-000000020")).problem
    assert problem is not None
    assert problem.why == "its manifest names a file 'rank-29999.json'"
