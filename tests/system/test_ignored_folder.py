"""A folder of our own is not offered to git, and one of the user's is left alone."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from holdfast.system import ignored_folder


def test_git_does_not_see_what_is_in_it(tmp_path: Path) -> None:
    git = ("git", "-C", str(tmp_path))
    subprocess.run([*git, "init", "-q"], check=True)
    ignored_folder.make(str(tmp_path / "deep" / "runs"))
    (tmp_path / "deep" / "runs" / "stdout.log").write_text("loss")
    seen = subprocess.run([*git, "status", "--porcelain"], check=True, capture_output=True)
    assert seen.stdout == b""


def test_a_folder_that_exists_stays_as_it_is(tmp_path: Path) -> None:
    ignored_folder.make(str(tmp_path))
    assert os.listdir(tmp_path) == []
