"""What the documents show of `lint` and `env` is what these verbs say today, word for word.

A block is a session: `$ cat FILE` shows a file, which is written; `$ holdfast lint …` and
`$ NAME=value holdfast env …` are run beside it. A line `…` stands for lines left out.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from holdfast.cli.main import main

ROOT = Path(__file__).parent.parent
PAGES = ("README.md", "docs/lint.md", "docs/settings.md")
RUN = ("lint", "env")
OURS = ("NCCL_", "TORCH", "PET_", "SLURM_", "MASTER_", "RANK", "WORLD_SIZE", "GLOO_", "OMP_")
PATIENT = {"env": ("--deadline", "30"), "lint": ()}
"""a loaded test machine must not look like one that hangs"""


class Step(NamedTuple):
    """A command that was typed, and what is shown below it."""

    words: list[str]
    shown: str

    @property
    def verb(self) -> str:
        at = self.words.index("holdfast") if "holdfast" in self.words else -1
        return self.words[at + 1] if at >= 0 else ""


def steps(block: str) -> list[Step]:
    parts = re.split(r"^\$ (.*)\n", block, flags=re.MULTILINE)[1:]
    typed, shown = parts[::2], parts[1::2]
    return [
        Step(shlex.split(line, comments=True), below.strip("\n"))
        for line, below in zip(typed, shown, strict=True)
    ]


def sessions() -> Iterator[tuple[str, list[Step]]]:
    """Every block with a screen of ours; where nothing is shown, nothing is claimed."""
    for page in PAGES:
        for block in re.findall(r"^```console\n(.*?)^```", (ROOT / page).read_text(), re.M | re.S):
            found = steps(block)
            if any(step.verb in RUN and step.shown for step in found):
                yield page, found


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    for name in [name for name in os.environ if name.startswith(OURS)]:
        monkeypatch.delenv(name)
    return monkeypatch


@pytest.mark.parametrize(("page", "session"), sessions())
def test_a_screen_is_what_is_said_today(
    page: str,
    session: list[Step],
    clean: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for step in session:
        if step.words[0] == "cat":
            Path(step.words[1]).write_text(step.shown + "\n")
        elif step.verb in RUN:
            typed = step.words.index("holdfast")
            with clean.context() as patch:
                for name, _, value in (word.partition("=") for word in step.words[:typed]):
                    patch.setenv(name, value)
                main([step.verb, *PATIENT[step.verb], *step.words[typed + 2 :]])
            assert_shown(step.shown, capsys.readouterr().out, page)


def assert_shown(shown: str, said: str, page: str) -> None:
    pieces = [piece.strip("\n") for piece in re.split(r"^…$", shown, flags=re.MULTILINE)]
    if len(pieces) == 1:
        assert shown == said.strip("\n"), f"{page} shows another screen"
    for piece in pieces:
        before, found, said = said.partition(piece)
        assert found, f"{page}: not said (in this order):\n{piece}\nbut\n{before}"


@pytest.mark.parametrize("page", PAGES)
def test_the_pages_show_screens(page: str) -> None:
    assert page in [shown for shown, _ in sessions()]
