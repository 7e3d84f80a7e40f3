"""Folders a job writes into: present, absent, full, read-only, forbidden."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.machine import Folder
from holdfast.check.readers.folders import read_folders
from holdfast.system.filesystem import filesystem_of
from tests.faults.machines import a_plan
from tests.system.sockets import BECOME_NOBODY, needs, needs_root, run_python

LOOK = """
import subprocess, sys
import msgspec
from holdfast.check.readers.folders import read_folders
from holdfast.system.filesystem import filesystem_of
from tests.faults.machines import a_plan
folder, *mount = sys.argv[1:]
if mount:
    subprocess.run(["mount", *mount, folder], check=True)
"""
TELL = """
found = read_folders(a_plan(checkpoint_folders=(folder,), log_folder=""))
print(msgspec.json.encode(found).decode())
"""
FILL = """
with open(folder + "/big", "wb") as big:
    big.write(bytes(60 << 10))
"""


def look_elsewhere(code: str, *arguments: str, inside: tuple[str, ...] = ()) -> Folder:
    said = run_python(code, *arguments, inside=inside)
    (folder,) = msgspec.json.decode(said, type=tuple[Folder, ...])
    return folder


def mounted(folder: Path, *mount: str, then: str = "") -> Folder:
    needs_root()
    needs("unshare")
    inside = ("unshare", "--mount")
    return look_elsewhere(LOOK + then + TELL, str(folder), *mount, inside=inside)


def test_a_healthy_folder_has_room_and_nothing_stays_behind(tmp_path: Path) -> None:
    (folder,) = read_folders(a_plan(checkpoint_folders=(str(tmp_path),), log_folder=""))
    assert folder.exists
    assert folder.is_directory
    assert folder.looked_at == folder.path == str(tmp_path)
    assert folder.write_error == ""
    assert 0 < folder.free <= folder.size
    assert folder.filesystem
    assert list(tmp_path.iterdir()) == []


def test_for_a_folder_that_is_not_there_its_nearest_parent_is_looked_at(tmp_path: Path) -> None:
    plan = a_plan(checkpoint_folders=(), log_folder=str(tmp_path / "runs" / "today"))
    (folder,) = read_folders(plan)
    assert (folder.purpose, folder.exists, folder.looked_at) == ("logs", False, str(tmp_path))
    assert folder.write_error == ""
    assert list(tmp_path.iterdir()) == []


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (folder,) = read_folders(a_plan(log_folder="~/runs"))
    assert folder.path == str(tmp_path / "runs")


@pytest.mark.parametrize("below", ["", "/deeper"])
def test_a_file_in_its_place_is_no_directory(tmp_path: Path, below: str) -> None:
    (tmp_path / "ckpts").write_text("not a folder")
    path = f"{tmp_path}/ckpts{below}"
    (folder,) = read_folders(a_plan(checkpoint_folders=(path,), log_folder=""))
    assert folder.looked_at == str(tmp_path / "ckpts")
    assert not folder.is_directory
    assert folder.write_error == "ENOTDIR"


@pytest.mark.lab
def test_a_full_disk_refuses_the_write(tmp_path: Path) -> None:
    mount = ("-t", "tmpfs", "-o", "size=64k", "tmpfs")
    folder = mounted(tmp_path, *mount, then=FILL)
    assert folder.write_error == "ENOSPC"
    assert (folder.filesystem, folder.size) == ("tmpfs", 64 << 10)
    assert folder.free < 8 << 10


@pytest.mark.lab
def test_a_disk_without_inodes_refuses_the_file(tmp_path: Path) -> None:
    folder = mounted(tmp_path, "-t", "tmpfs", "-o", "nr_inodes=1", "tmpfs")
    assert folder.write_error == "ENOSPC"
    assert (folder.inodes, folder.inodes_free) == (1, 0)


@pytest.mark.lab
def test_a_read_only_disk_says_so(tmp_path: Path) -> None:
    folder = mounted(tmp_path, "-t", "tmpfs", "-o", "ro", "tmpfs")
    assert folder.read_only
    assert folder.write_error == "EROFS"


@pytest.mark.lab
@pytest.mark.parametrize("below", ["", "closed/ckpts"])
def test_a_folder_of_another_user_is_forbidden(below: str) -> None:
    needs_root()
    with tempfile.TemporaryDirectory() as theirs:
        Path(theirs).chmod(0o755)
        (Path(theirs) / "closed").mkdir(mode=0o700)
        folder = look_elsewhere(LOOK + BECOME_NOBODY + TELL, os.path.join(theirs, below))
    assert folder.write_error == "EACCES"


@pytest.mark.lab
def test_without_unnamed_files_we_only_ask() -> None:
    """/proc knows no O_TMPFILE, like many network file systems; root may write there."""
    needs_root()
    (folder,) = read_folders(a_plan(log_folder="/proc"))
    assert (folder.filesystem, folder.write_error) == ("proc", "")
    assert look_elsewhere(LOOK + BECOME_NOBODY + TELL, "/proc").write_error == "EACCES"


@given(mount_id=st.text(max_size=4), text=st.text())
def test_any_mount_table_is_read_without_a_stumble(mount_id: str, text: str) -> None:
    assert isinstance(filesystem_of(mount_id, text), str)


def test_a_mount_is_found_by_its_id() -> None:
    table = (
        "22 27 0:21 / /proc rw,relatime - proc proc rw\n"
        "30 25 0:27 / /mnt/a\\040b rw shared:1 - nfs4 filer:/x rw,vers=4.2\n"
    )
    assert filesystem_of("30", table) == "nfs4"
    assert filesystem_of("2", table) == ""


def test_a_link_that_leads_nowhere_is_no_place_for_a_folder(tmp_path: Path) -> None:
    link = tmp_path / "ckpts"
    link.symlink_to(tmp_path / "gone")
    for named in (link, link / "run1"):
        with pytest.raises(FileExistsError):
            named.mkdir(parents=True)
        (folder,) = read_folders(a_plan(checkpoint_folders=(str(named),), log_folder=""))
        assert (folder.write_error, folder.looked_at) == ("EEXIST", str(tmp_path))


FROM_A_REMOVED_FOLDER = """
import os, sys
from holdfast.check.readers.folders import read_folders
from holdfast.system.filesystem import filesystem_of
from tests.faults.machines import a_plan
plan = a_plan(checkpoint_folders=(), log_folder="runs")
os.chdir(sys.argv[1])
os.rmdir(sys.argv[1])
try:
    read_folders(plan)
except OSError as problem:
    print(problem)
"""


def test_a_current_folder_that_was_removed_is_reported(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    said = run_python(FROM_A_REMOVED_FOLDER, str(here))
    assert said == "runs: the current folder does not exist any more\n"
