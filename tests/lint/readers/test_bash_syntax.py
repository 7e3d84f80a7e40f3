"""A launch script that its language refuses is reported once, and linted as far as parsed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from holdfast.lint import read
from holdfast.lint.detect_language import Language
from holdfast.lint.readers import bash_syntax, compose, shell
from holdfast.lint.walk import LintText

BROKEN = "export NCCL_TIMEOUT=300\nif true; then\n  echo yes\ntorchrun train.py\n"


def refused(text: str) -> tuple[int, str] | None:
    source = bash_syntax.confirmed(shell.read(text, "run.sh"), text)
    return (source.refused.place.line, source.refused.error) if source.refused else None


def test_bash_names_the_line_and_the_rest_is_read() -> None:
    piece = read.read(LintText("run.sh", Language.SHELL, BROKEN))
    assert isinstance(piece, read.FileSources)
    source = piece.sources[0]
    assert source.refused is not None
    assert source.refused.place.line == 5
    assert "unexpected end of file" in source.refused.error
    assert [setting.name for setting in source.settings] == ["NCCL_TIMEOUT"]


def test_a_token_out_of_place() -> None:
    line, error = refused("echo a\necho b )\necho c\n") or (0, "")
    assert line == 2
    assert "unexpected token" in error


@pytest.mark.parametrize(
    "text",
    [
        "torchrun --nproc-per-node 4 train.py\n",
        "coproc cat; exec {fd}>&1\n",  # right, and strange to many a grammar
        "for ((;;)); do break; done\n",
        "",
    ],
)
def test_what_bash_accepts_is_not_reported(text: str) -> None:
    assert refused(text) is None


def test_nothing_is_run(tmp_path: Path) -> None:
    assert refused(f"touch {tmp_path}/ran\necho )\n")
    assert list(tmp_path.iterdir()) == []


def test_without_a_bash_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert shutil.which("bash") is None
    assert refused("echo )\n") is None


def test_what_is_too_complex_to_be_parsed_is_never_called_clear() -> None:
    """The grammar gives up on this one; bash, which takes it for a program, is not asked."""
    found = refused("${" * 60_000)
    assert found == (1, "it is too complex to be parsed to the end")


def test_an_excerpt_is_not_asked_about() -> None:
    assert shell.read("echo )\n", "guide.md", complete=False).refused is None


def test_invalid_yaml_is_reported_at_its_line() -> None:
    text = "services:\n  a:\n    shm_size: 1g\n    environment: [A=1\n    ipc: host\n"
    source = compose.read(text, "compose.yaml")
    assert source.refused is not None
    assert source.refused.place.line == 5
    assert "no valid YAML" in source.refused.error


@pytest.mark.parametrize("text", ["services:\n  a:\n    image: {{ image }}: x\n", "services: {}\n"])
def test_templates_and_good_files_are_not(text: str) -> None:
    assert compose.read(text, "compose.yaml").refused is None
