"""`holdfast lint` as a user runs it: real files, real configuration, real exit codes."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from holdfast.cli.main import main
from tests.cli.holdfast_command import HOLDFAST, run

SCRIPT = """\
import torch.distributed as dist


def average(x):
    dist.all_reduce(x, timeout=5)
"""
LAUNCH_SCRIPT = """\
#!/bin/bash
export NCCL_REUSE_SOCKET_ADDR=0
torchrun --nproc-per-node 2 train.py
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "launch.sh").write_text(LAUNCH_SCRIPT)
    (tmp_path / "fine.py").write_text("import torch\n")
    return tmp_path


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


Lint = Callable[..., Done]


@pytest.fixture
def lint(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Lint:
    """The command within this process: dozens of starts would only measure Python's."""

    def typed(*arguments: str, stdin: str = "") -> Done:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        try:
            code = main(["lint", *arguments])
        except SystemExit as left:  # argparse's own way out
            code = int(str(left.code))
        return Done(code, *capsys.readouterr())

    return typed


def found(done: Done) -> list[tuple[str, int, int, str]]:
    assert done.returncode in (0, 1), done.stderr
    document = json.loads(done.stdout)
    assert (document["schema"], document["command"]) == ("holdfast/1", "lint")
    return [
        (os.path.basename(f["file"]), f["line"], f["column"], f["slug"])
        for f in document["findings"]
    ]


def test_a_folder_as_text(project: Path) -> None:
    done = run("lint", ".", "--select", "timeout-keyword,variable-unread", cwd=project)
    assert done.returncode == 1
    assert "launch.sh:2:8: HOLD501 [variable-unread] error: " in done.stdout
    assert "train.py:5:24: HOLD613 [timeout-keyword] error: " in done.stdout
    assert "5 | dist.all_reduce(x, timeout=5)\n" in done.stdout
    assert done.stdout.endswith("Found 2 errors in 2 files (3 looked at).\n")
    assert "\033" not in done.stdout


def test_the_document_has_the_promised_shape(project: Path, lint: Lint) -> None:
    (project / "broken.py").write_text("def f(:\n")
    (project / "data.py").write_bytes(b"\0\1\2")
    document = json.loads(lint("--json", str(project)).stdout)
    assert set(document) == {
        "schema", "command", "findings", "counts", "files", "unread", "seconds",
    }  # fmt: skip
    assert document["files"] == 3
    assert [os.path.basename(one["file"]) for one in document["unread"]] == ["data.py"]
    assert set(document["counts"]) == {"error", "warning", "note", "skipped"}
    assert sum(document["counts"].values()) == len(document["findings"])
    for finding in document["findings"]:
        assert {"code", "slug", "status", "summary", "reason", "fix", "evidence"} < set(finding)
        assert {"file", "line", "column"} < set(finding)


def test_what_cannot_be_read_is_a_line_each_and_the_rest_is_linted(
    project: Path, lint: Lint
) -> None:
    (project / "broken.py").write_text("import torch\ndef f(:\n")
    (project / "data.py").write_bytes(b"\0\1\2")
    (project / "odd.py").write_bytes(b"# coding: klingon\n")
    with (project / "huge.py").open("wb") as file:
        file.truncate(6 << 20)
    done = lint(".", "--select", "timeout-keyword")
    assert "train.py:5:24: HOLD613" in done.stdout
    assert "broken.py:2:7: HOLD626 [script-broken] skipped: Python" in done.stdout
    assert done.stdout.endswith("(3 looked at, 4 not readable).\n")
    told = done.stderr.splitlines()
    assert len(told) == 3
    for line, word in zip(
        told, ["data.py: not linted: not text", "huge.py", "klingon"], strict=True
    ):
        assert word in line
    assert lint("broken.py").returncode == 2
    assert lint("data.py").returncode == 2


def test_exit_code_and_fail_on(project: Path, lint: Lint) -> None:
    error = ("train.py", "--select", "timeout-keyword")
    assert lint(*error).returncode == 1
    assert lint(*error, "--fail-on", "never").returncode == 0
    assert lint("fine.py").returncode == 0


def test_stdin(project: Path, lint: Lint) -> None:
    assert found(
        lint("--json", "-", "--stdin-filename", "x.py", "--select", "HOLD613", stdin=SCRIPT)
    ) == [("x.py", 5, 24, "timeout-keyword")]
    assert ("stdin", 2, 8, "variable-unread") in found(lint("--json", "-", stdin=LAUNCH_SCRIPT))


def test_github_annotations(project: Path, lint: Lint) -> None:
    done = lint("train.py", "--output-format", "github", "--select", "6")
    assert done.stdout.startswith(
        "::error file=train.py,line=5,col=24,title=HOLD613 timeout-keyword::"
    )


def test_the_project_may_choose(project: Path, lint: Lint) -> None:
    everything = found(lint("--json", str(project), "--select", "timeout-keyword,variable-unread"))
    assert [slug for *_, slug in everything] == ["variable-unread", "timeout-keyword"]
    (project / "pyproject.toml").write_text(
        '[tool.holdfast.lint]\nselect = ["5", "timeout-keyword"]\nexclude = ["fine.py"]\n'
        'per-file-ignores = { "*.sh" = ["variable-unread"] }\n'
    )
    assert [slug for *_, slug in found(lint("--json", str(project)))] == ["timeout-keyword"]
    assert found(lint("--json", str(project), "--ignore", "HOLD613")) == []
    (project / "train.py").write_text(SCRIPT.replace("=5)", "=5)  # holdfast: ignore[HOLD613]"))
    assert found(lint("--json", str(project))) == []


def test_the_torch_version_may_be_given(project: Path, lint: Lint) -> None:
    script = SCRIPT.replace("all_reduce(x, timeout=5)", "barrier(timeout=t)")
    (project / "train.py").write_text(script)
    chosen = ("--select", "timeout-keyword", str(project / "train.py"))
    assert found(lint("--json", "--torch-version", "2.8.0", *chosen)) != []
    assert found(lint("--json", "--torch-version", "2.13.0", *chosen)) == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "error: nothing to lint: give files or folders"),
        (["nowhere.py"], "error: there is no file or folder 'nowhere.py'"),
        (["--select", "tiemout", "."], "error: no fault is called 'tiemout'"),
        (["--output-format", "xml", "."], "invalid choice: 'xml'"),
    ],
)
def test_bad_input_is_one_sentence(
    project: Path, lint: Lint, arguments: list[str], sentence: str
) -> None:
    done = lint(*arguments)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_a_slip_in_the_configuration_or_a_comment_is_reported(project: Path, lint: Lint) -> None:
    (project / "fine.py").write_text("import torch  # holdfast: ignore[no-such]\n")
    done = lint("fine.py")
    assert done.stderr == "fine.py:1: unknown fault 'no-such': this comment ignores nothing\n"
    (project / "pyproject.toml").write_text('[tool.holdfast.lint]\nignore = ["no-such"]\n')
    done = lint("fine.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no fault is called 'no-such'" in done.stderr


def test_nothing_to_lint_is_said(tmp_path: Path, lint: Lint) -> None:
    (tmp_path / "x.bin").write_bytes(b"\0")
    done = lint(str(tmp_path))
    assert done.returncode == 0
    assert "nothing to lint in" in done.stderr


def test_the_environment_without_its_secrets() -> None:
    environment = {"NCCL_REUSE_SOCKET_ADDR": "0", "ACCELERATE_TOKEN": "hf_abcdefghijklmnop"}
    done = run("lint", "--env", environment=environment)
    assert "environment: HOLD501 [variable-unread] error: NCCL_REUSE_SOCKET_ADDR" in done.stdout
    assert "hf_abc" not in done.stdout + done.stderr


def test_a_terminal_gets_colour(project: Path) -> None:
    near, far = pty.openpty()
    environment = {k: v for k, v in os.environ.items() if k != "NO_COLOR"} | {"TERM": "xterm"}
    subprocess.run(
        [*HOLDFAST, "lint", "train.py", "--select", "timeout-keyword"],
        stdout=far, cwd=project, env=environment, timeout=60, check=False,
    )  # fmt: skip
    os.close(far)
    shown = os.read(near, 1 << 16)
    os.close(near)
    assert b"\033[1;31merror\033[0m" in shown
