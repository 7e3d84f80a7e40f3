"""[tool.holdfast.lint], found and read from real files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.errors import ConfigError, EnvironmentFailure
from holdfast.lint import config

EVERYTHING = """
[tool.holdfast.lint]
select = ["6"]
ignore = ["port-ephemeral"]
exclude = ["build", "third_party/*"]
torch = "2.9"
per-file-ignores = { "tests/*" = ["group-not-destroyed"], "*.md" = ["1"] }
"""


def project(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(text)
    return folder


def test_every_key(tmp_path: Path) -> None:
    found = config.find(str(project(tmp_path, EVERYTHING)))
    assert (found.select, found.ignore, found.torch) == (("6",), ("port-ephemeral",), "2.9")
    assert found.excludes(str(tmp_path / "a" / "build" / "x.py"))
    assert found.excludes(str(tmp_path / "third_party" / "lib" / "x.py"))
    assert not found.excludes(str(tmp_path / "rebuild" / "x.py"))
    assert found.ignored_in(str(tmp_path / "tests" / "x.py")) == ("group-not-destroyed",)
    assert found.ignored_in(str(tmp_path / "docs" / "x.md")) == ("1",)
    assert found.ignored_in(str(tmp_path / "x.py")) == ()


def test_the_nearest_that_speaks_of_holdfast(tmp_path: Path) -> None:
    project(tmp_path, EVERYTHING)
    inner = project(tmp_path / "a", "[tool.ruff]\n")
    (inner / "x.py").write_text("")
    assert config.find(str(inner / "x.py")).file == str(tmp_path / "pyproject.toml")
    project(inner, "[tool.holdfast.lint]\n")
    assert config.find(str(inner / "x.py")).file == str(inner / "pyproject.toml")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[tool.holdfast.lint]\nselct = []\n", "has no key 'selct'"),
        ("[tool.holdfast]\nselct = []\n", "has no key 'selct'"),
        ("[tool]\nholdfast = 1\n", "must be a table"),
        ("[tool.holdfast]\nlint = 1\n", "must be a table"),
        ("[tool.holdfast.lint]\nselect = 'a'\n", "select"),
        ("[tool.holdfast.lint]\nper-file-ignores = {a = 1}\n", "per"),
    ],
)
def test_a_slip_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as told:
        config.find(str(project(tmp_path, text)))
    assert sentence in told.value.sentence
    assert "pyproject.toml" in told.value.sentence


def test_both_tables_count_and_the_inner_one_more(tmp_path: Path) -> None:
    text = '[tool.holdfast]\nselect = ["5"]\ntorch = "2.9"\n[tool.holdfast.lint]\nselect = ["6"]\n'
    found = config.find(str(project(tmp_path, text)))
    assert (found.select, found.torch) == (("6",), "2.9")


def test_broken_toml_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailure, match="not valid TOML"):
        config.find(str(project(tmp_path, "[tool")))


def test_a_pattern_may_be_spelt_in_several_ways(tmp_path: Path) -> None:
    text = '[tool.holdfast.lint]\nexclude = ["./gen/", "**/vendored", "**/a_*.py"]\n'
    found = config.find(str(project(tmp_path, text)))
    for path in ("gen/x.py", "vendored/x.py", "deep/er/vendored/x.py", "a_b.py", "x/a_b.py"):
        assert found.excludes(str(tmp_path / path)), path
    assert not found.excludes(str(tmp_path / "b_a.py"))


def test_what_is_no_file_or_nested_too_deeply(tmp_path: Path) -> None:
    outer = project(tmp_path, EVERYTHING)
    (outer / "pipe").mkdir()
    os.mkfifo(outer / "pipe" / "pyproject.toml")
    (outer / "folder" / "pyproject.toml").mkdir(parents=True)
    for name in ("pipe", "folder"):
        assert config.find(str(outer / name)).file == str(outer / "pyproject.toml")
    with pytest.raises(EnvironmentFailure, match="nested too deeply"):
        config.find(str(project(tmp_path / "deep", "x = " + "[" * 100_000)))
