from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from holdfast.run.launch import socket_folder


def test_folders_of_dead_launchers_go_and_all_others_stay(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    stale = tmp_path / f"holdfast-{dead.pid}-abc"
    kept = [
        tmp_path / f"holdfast-{os.getpid()}-abc",
        tmp_path / "holdfast-runs-abc",
        tmp_path / f"other-{dead.pid}-abc",
    ]
    for folder in (stale, *kept):
        folder.mkdir()
        (folder / "0.sock").touch()
    (tmp_path / f"holdfast-{dead.pid}-link").symlink_to(kept[0])
    socket_folder.sweep(str(tmp_path))
    assert not stale.exists()
    assert all((folder / "0.sock").exists() for folder in kept)


def test_a_new_folder_is_ours_alone() -> None:
    folder = socket_folder.make()
    try:
        assert f"holdfast-{os.getpid()}-" in folder
        assert os.stat(folder).st_mode & 0o077 == 0
    finally:
        os.rmdir(folder)
