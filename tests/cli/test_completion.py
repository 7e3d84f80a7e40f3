"""Completion, asked of a real bash."""

from __future__ import annotations

import functools
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from holdfast import catalogue
from holdfast.cli.completion import words_by_verb
from holdfast.cli.main import VERBS
from tests.cli.holdfast_command import run


@functools.cache
def script(shell: str) -> str:
    return run("completion", shell).stdout


def offered(*words: str, folder: Path | None = None) -> list[str]:
    """What bash offers for the last of these words after `holdfast`."""
    bash = shutil.which("bash")
    assert bash, "the project's own CI is a bash script"
    typed = " ".join(map(shlex.quote, ("holdfast", *words)))
    ask = f"\nCOMP_WORDS=({typed}); COMP_CWORD={len(words)}; _holdfast\n"
    ask += 'printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(
        [bash, "-c", script("bash") + ask],
        capture_output=True, text=True, check=True, cwd=folder,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.split("\n")[:-1]


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A folder with a script, a folder and two runs, one of them elsewhere."""
    (tmp_path / "train.py").touch()
    (tmp_path / "two words.log").touch()
    (tmp_path / "logs").mkdir()
    for run_folder in ("runs/0115-1200-a1b2", "elsewhere/0116-0900-c3d4"):
        (tmp_path / run_folder).mkdir(parents=True)
        (tmp_path / run_folder / "journal.jsonl").touch()
    (tmp_path / "runs" / "not-a-run").mkdir()
    return tmp_path


def test_every_verb_is_offered_first() -> None:
    assert set(offered("")) == {*VERBS, "--help", "--version"}
    assert offered("ex") == ["explain"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["explain", "port-in"], ["port-in-use"]),
        (["check", "--only", "port-in"], ["port-in-use"]),
        (["lint", "--select", "HOLD101"], ["HOLD101"]),
        (["check", "--fail-on", ""], ["error", "warning", "note", "never"]),
        (["check", "--nn"], ["--nnodes"]),
        (["run", "--pat"], ["--patience"]),
        (["run", "--nproc"], ["--nproc-per-node"]),
        (["run", "--standalone", "--max-r"], ["--max-restarts"]),
        (["drill", "--qui"], ["--quick"]),
        (["drill", "--nproc"], ["--nproc-per-node"]),
        (["drill", "--runner", "t"], ["torchrun"]),
        (["drill", "--faults", "rank-kil"], ["rank-killed"]),
        (["env", "NCCL_SOCKET_IF"], ["NCCL_SOCKET_IFNAME"]),
        (["completion", ""], ["bash", "zsh", "fish"]),
    ],
)
def test_flags_and_names(words: list[str], expected: list[str]) -> None:
    assert offered(*words) == expected


@pytest.mark.parametrize("verb", ["lint", "explain", "run", "drill"])
def test_files_where_files_are_read(verb: str, job: Path) -> None:
    assert offered(verb, "tra", folder=job) == ["train.py"]
    assert "two words.log" in offered(verb, "two", folder=job)
    assert "logs" in offered(verb, "--json", "lo", folder=job)


def test_no_files_where_none_is_read(job: Path) -> None:
    assert "train.py" not in offered("check", "", folder=job)
    assert "--nnodes" in offered("check", "", folder=job)
    assert offered("check", "--ckpt", "", folder=job) == ["elsewhere", "logs", "runs"]


@pytest.mark.parametrize("words", [["stop", ""], ["bundle", ""], ["explain", "--run", ""]])
def test_ids_of_runs(words: list[str], job: Path) -> None:
    assert offered(*words, folder=job) == ["latest", "0115-1200-a1b2"]
    elsewhere = [words[0], "--runs", "elsewhere", *words[1:]]
    assert offered(*elsewhere, folder=job) == ["latest", "0116-0900-c3d4"]
    assert "latest" not in offered(*words, folder=job / "logs")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_gets_every_verb_flag_and_fault(shell: str) -> None:
    text = script(shell)
    words = words_by_verb()
    for word in (*VERBS, *(flag for found in words.values() for flag in found.flags)):
        assert word in text
    assert all(entry.fault.slug in text for entry in catalogue.entries())
