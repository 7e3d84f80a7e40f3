"""Which holdfast runs on the other host; the line is given to real shells, as sshd does it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.nodes.reach.remote_command import remote_command

SHELLS = [shell for shell in ("sh", "bash", "zsh", "tcsh", "fish") if shutil.which(shell)]


def ran(line: str, home: Path, shell: str = "sh") -> tuple[int, str]:
    done = subprocess.run(
        [shutil.which(shell) or shell, "-c", line],
        cwd=home,
        env={"PATH": f"{home / 'my bin'}:/usr/bin:/bin", "HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout or done.stderr


def program(path: Path, says: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\necho {says} "$#:" "$@"\n')
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("shell", SHELLS)
def test_the_same_python_runs_it_where_it_has_holdfast(tmp_path: Path, shell: str) -> None:
    package = tmp_path / "site" / "holdfast"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text("import sys; print('module', sys.argv[1:])")
    python = tmp_path / "my env" / "python"
    program(python, "x").write_text(
        f'#!/bin/sh\nexec env PYTHONPATH={tmp_path}/site {sys.executable} -S "$@"\n'
    )
    program(tmp_path / "my bin" / "holdfast", "from PATH")
    line = remote_command(["check", "--member", "it's"], same_python=str(python))
    assert ran(line, tmp_path, shell) == (0, "module ['check', '--member', \"it's\"]\n")


@pytest.mark.parametrize("shell", SHELLS)
def test_the_path_decides_where_that_python_is_missing(tmp_path: Path, shell: str) -> None:
    program(tmp_path / "my bin" / "holdfast", "from PATH")
    line = remote_command(["check", "a b"], same_python=str(tmp_path / "gone"))
    assert ran(line, tmp_path, shell) == (0, "from PATH 2: check a b\n")


def test_the_path_decides_where_that_python_has_no_holdfast(tmp_path: Path) -> None:
    program(tmp_path / "my bin" / "holdfast", "from PATH")
    (tmp_path / "holdfast").mkdir()  # a checkout in the home folder is no installation
    python = program(tmp_path / "bare" / "python", "x")
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    line = remote_command(["check", "a b"], same_python=str(python))
    assert ran(line, tmp_path) == (0, "from PATH 2: check a b\n")


def test_a_python_that_the_user_named_counts(tmp_path: Path) -> None:
    python = program(tmp_path / "my env" / "python", "named")
    line = remote_command(["check"], same_python="/bin/true", remote_python=str(python))
    assert ran(line, tmp_path) == (0, "named 3: -m holdfast check\n")


@pytest.mark.parametrize("same", ["", "/no/such/python"])
def test_without_holdfast_the_shell_says_so(tmp_path: Path, same: str) -> None:
    status, said = ran(remote_command(["check"], same_python=same), tmp_path)
    assert status == 127
    assert "not found" in said
