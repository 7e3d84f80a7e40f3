"""What the README shows of `holdfast run` is what it prints; its loop: tests/checkpoint."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.places import ROOT

README = (ROOT / "README.md").read_text()
NUMBERS = re.compile(r"\b[0-9a-f]{16}\b|\d+(?:\.\d+)?")
RUN_ID = re.compile(r"runs/[\w-]+")


def masked(line: str) -> str:
    """Without what differs from run to run: numbers, pids, digests, the id of the run."""
    return NUMBERS.sub("N", RUN_ID.sub("runs/ID", line.rstrip()))


def console(starting_with: str) -> list[str]:
    """The lines below that command, up to the end of its block."""
    (block,) = re.findall(rf"^\$ {re.escape(starting_with)}.*?(?=^```$)", README, re.M | re.S)
    return str(block).splitlines()


def test_the_line_that_the_screen_names_is_the_one_that_hangs() -> None:
    """Numbers are masked below; this one a reader looks up."""
    script = (ROOT / "examples" / "train.py").read_text().splitlines()
    named = re.findall(r"break_on_purpose\(\) at train\.py:(\d+)", README)
    assert named
    assert {script[int(line) - 1].strip() for line in named} == {"time.sleep(3600)"}


@pytest.mark.long
@pytest.mark.xdist_group("readme")
def test_the_screen_of_run_is_what_run_prints(tmp_path: Path) -> None:
    command, *shown = console("BREAK=1 holdfast run")
    words = shlex.split(command.removeprefix("$ "))
    at = words.index("holdfast")
    variables = dict(word.split("=", 1) for word in words[:at])
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    done = subprocess.run(
        [sys.executable, "-m", *words[at:]],
        cwd=tmp_path,
        env={**os.environ, **variables, "COLUMNS": "100"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    here = f"{tmp_path}/"
    printed = iter(masked(line.replace(here, "")) for line in done.stdout.splitlines())
    for line in shown:
        if line.strip() != "…":
            assert any(masked(line) == other for other in printed), f"{line}\n\n{done.stdout}"
