"""`holdfast lint` with careless or hostile input."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from holdfast.lint import walk
from tests.cli.holdfast_command import HOLDFAST, run
from tests.cli.test_lint_for_real import LAUNCH_SCRIPT, SCRIPT, Lint, found, lint, project

__all__ = ["lint", "project"]  # fixtures


def test_stdin_that_is_too_large_is_not_judged_by_its_beginning(lint: Lint) -> None:
    done = lint("-", stdin=LAUNCH_SCRIPT + "#" * walk.LARGEST)
    assert (done.returncode, done.stdout) == (2, "")
    assert "stdin: not linted: too large (more than" in done.stderr


def test_blanks_between_names(project: Path, lint: Lint) -> None:
    chosen = ("--select", " timeout-keyword , 5 ", "--ignore", "port-ephemeral, HOLD602")
    assert [slug for *_, slug in found(lint("--json", "train.py", *chosen))] == ["timeout-keyword"]


@pytest.mark.parametrize("version", ["abc", "2", "latest", "v2.9", "99999999999999999999.1"])
def test_a_version_that_is_none(project: Path, lint: Lint, version: str) -> None:
    done = lint("train.py", "--torch-version", version)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"the torch version must look like 2.9 or 2.9.1, got {version!r}" in done.stderr
    assert lint("train.py", "--torch-version", "2.9.1+cu128").returncode == 1


def test_a_slip_in_the_configuration_names_its_file(project: Path, lint: Lint) -> None:
    text = '[tool.holdfast.lint]\nper-file-ignores = { "x" = ["no-such"] }\n'
    (project / "pyproject.toml").write_text(text)
    assert "pyproject.toml: no fault is called 'no-such'" in lint("train.py").stderr


def test_nothing_to_lint_is_not_called_clear(tmp_path: Path, lint: Lint) -> None:
    done = lint(str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "")
    assert "nothing to lint" in done.stderr


def test_github_shows_scripts_that_could_not_be_read(project: Path, lint: Lint) -> None:
    (project / "broken.py").write_text("def f(:\n")
    done = lint("--output-format", "github", "fine.py", "broken.py")
    assert done.stdout == ""
    assert "broken.py:1:7: not linted: Python" in done.stderr


def test_a_password_in_a_launch_script_stays_there(project: Path, lint: Lint) -> None:
    (project / "launch.sh").write_text(
        "export NCCL_SOCKET_IFNAME=https://me:hunter2hunter2@host\n"
        "torchrun --rdzv-endpoint http://me:hunter2hunter2@host:29400 --nnodes 2 train.py\n"
    )
    for form in ("text", "json", "github"):
        done = lint("launch.sh", "--output-format", form)
        assert done.returncode in (0, 1), done.stderr
        assert done.stdout
        assert "hunter2" not in done.stdout + done.stderr


def test_a_comment_and_an_excerpt_in_a_notebook_of_one_line(project: Path, lint: Lint) -> None:
    def notebook(*code: str) -> None:
        cells = [{"cell_type": "code", "source": one} for one in code]
        (project / "x.ipynb").write_text(json.dumps({"cells": cells}))

    notebook("import torch", SCRIPT)
    assert "    dist.all_reduce(x, timeout=5)".strip() in lint("x.ipynb").stdout
    notebook("import torch", SCRIPT.replace("=5)", "=5)  # holdfast: ignore[timeout-keyword]"))
    assert lint("x.ipynb").returncode == 0


def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    program = 'cd "$0" && rmdir "$0" && exec "$@"'
    for arguments, code in ((["lint", "--env"], 2), (["env", "--export"], 0)):
        gone = tmp_path / "gone"
        gone.mkdir()
        done = subprocess.run(
            ["sh", "-c", program, str(gone), *HOLDFAST, *arguments],
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr


def test_odd_names_reach_every_form(tmp_path: Path) -> None:
    names = [b"a,b:c%d.py", b"new\nline.py", b"\x1b[31m.py", b"bad\xff.py", b"-x.py"]
    for name in names:
        with open(os.fsencode(tmp_path) + b"/" + name, "w") as file:
            file.write(SCRIPT)
    select = ("--select", "timeout-keyword")
    document = json.loads(run("lint", "--json", ".", *select, cwd=tmp_path).stdout)
    assert len(document["findings"]) == len(names)
    plain = run("lint", ".", *select, cwd=tmp_path).stdout
    assert "\x1b" not in plain
    assert plain.count("HOLD613 [timeout-keyword]") == len(names)
    annotations = run("lint", "--output-format", "github", ".", *select, cwd=tmp_path).stdout
    assert len(annotations.splitlines()) == len(names)
    assert "::error file=a%2Cb%3Ac%25d.py,line=5," in annotations
    assert "::error file=new%0Aline.py,line=5," in annotations
