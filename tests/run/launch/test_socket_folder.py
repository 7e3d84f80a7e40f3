"""The folder for sockets: private, short, on a local disk, and safe from other launchers."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.errors import EnvironmentFailure
from holdfast.run.launch import socket_folder
from holdfast.run.launch.socket_folder import LocalFolder
from tests.cli.holdfast_command import in_a_namespace

HOLD = """
import sys
from holdfast.run.launch.socket_folder import LocalFolder
folder = LocalFolder()
print(folder.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Shorter than pytest's own, which is too long for a socket when several processes test."""
    with tempfile.TemporaryDirectory(prefix="own-", dir="/tmp") as made:
        yield Path(made)


@pytest.fixture(autouse=True)
def _own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_folders_of_dead_launchers_go_and_all_others_stay(tmp_path: Path) -> None:
    dead = subprocess.run(
        [sys.executable, "-c", HOLD], input="", env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True, text=True, check=True, timeout=60,
    ).stdout.strip()  # fmt: skip
    assert os.path.isdir(dead)
    old = tmp_path / "holdfast-1-old"  # its launcher was killed before it locked it
    starting, others = tmp_path / "holdfast-2-new", tmp_path / "holdfast-runs-abc"
    for folder in (old, starting, others):
        folder.mkdir()
        (folder / "0.sock").touch()
    os.utime(old, (0, time.time() - 2 * socket_folder.YOUNG))
    living = LocalFolder()
    (tmp_path / "holdfast-3-link").symlink_to(others)
    socket_folder.sweep(str(tmp_path))
    assert not os.path.exists(dead)
    assert not old.exists()
    assert all(os.path.isdir(f) for f in (living.path, starting, others))
    living.remove()
    assert not os.path.exists(living.path)


@pytest.mark.lab
def test_a_launcher_in_another_container_with_the_same_tmp_keeps_its_folder(tmp_path: Path) -> None:
    """Its pid is unknown here, or another process's."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [*in_a_namespace("pid", "fork", setup="true"), sys.executable, "-c", HOLD], env=environment,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as holder:  # fmt: skip
        assert holder.stdout
        theirs = holder.stdout.readline().strip()
        LocalFolder().remove()
        assert os.path.isdir(theirs)
        holder.communicate(timeout=30)
    LocalFolder().remove()
    assert not os.path.exists(theirs)


@pytest.mark.parametrize("why", ["too long", "on a file server"])
def test_a_tmpdir_that_will_not_do_is_replaced(
    why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why == "too long":
        there = tmp_path / ("x" * 90)
        there.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(there))
    else:
        kinds = {"/": "ext4", str(tmp_path): "nfs4"}
        monkeypatch.setattr(socket_folder, "_file_systems", lambda: kinds)
    made = LocalFolder()
    try:
        assert len(os.fsencode(made.socket(1234))) <= 107
        assert not made.path.startswith(str(tmp_path))
        assert os.stat(made.path).st_mode & 0o777 == 0o700
    finally:
        made.remove()


def test_a_new_folder_is_ours_alone(tmp_path: Path) -> None:
    made = LocalFolder()
    assert os.path.dirname(made.path) == str(tmp_path)
    assert os.stat(made.path).st_mode & 0o077 == 0
    made.remove()


def test_where_nothing_can_be_written_one_sentence_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none_is_usable() -> str:
        raise FileNotFoundError

    monkeypatch.setattr(tempfile, "gettempdir", none_is_usable)
    assert socket_folder._place() in socket_folder.OTHER_PLACES, "/dev/shm is none of Python's own"
    monkeypatch.setattr(socket_folder, "OTHER_PLACES", ("/nowhere",))
    with pytest.raises(EnvironmentFailure, match="neither /nowhere nor"):
        LocalFolder()
