"""Our own options behind the script are said to be the script's, unless it knows the word."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from holdfast.run.launch import misplaced_flags

OWN = ("--patience", "--no-pty", "--grace")


def said(script: Path, *words: str, text: str = "print(1)", **more: bool) -> tuple[str, ...]:
    script.write_text(text)
    typed = {"no_python": False, "module": False} | more
    return misplaced_flags.remarks(
        argparse.Namespace(training_script=str(script), training_script_args=list(words), **typed),
        OWN,
    )


def test_an_option_of_ours_behind_the_script_is_said(tmp_path: Path) -> None:
    script = tmp_path / "ddp.py"
    (remark,) = said(script, "--lr", "3", "--patience", "1")
    assert remark.startswith(f"--patience is given to {script}")
    assert f"holdfast run --patience … {script}" in remark
    (both,) = said(script, "--patience=1", "--no-pty")
    assert both.startswith("--patience and --no-pty are given")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("parser.add_argument('--patience')", ["--patience", "1"]),
        ("if args.no_pty: pass", ["--no-pty"]),
        ("print(1)", ["--lr", "1", "patience"]),
        ("print(1)", []),
        ("", ["--patience", "1"]),
    ],
)
def test_a_script_that_knows_the_word_may_have_it(
    tmp_path: Path, text: str, words: list[str]
) -> None:
    assert said(tmp_path / "a.py", *words, text=text) == ()


def test_what_is_no_script_is_not_looked_into(tmp_path: Path) -> None:
    assert said(tmp_path / "a.py", "--patience", "1", no_python=True) == ()
    assert said(tmp_path / "a.py", "--patience", "1", module=True) == ()
    away = argparse.Namespace(
        training_script="absent.py",
        training_script_args=["--patience"],
        no_python=False,
        module=False,
    )
    assert misplaced_flags.remarks(away, OWN) == ()
