from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import catalogue
from holdfast.errors import ConfigError
from holdfast.system import rule_files

RULE = "pattern = 'x'\nmeans = \"y\"\n"


def test_the_nearest_table_for_holdfast_counts(tmp_path: Path) -> None:
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text(f"[tool.holdfast.rules.one]\n{RULE}")
    (tmp_path / "a" / "pyproject.toml").write_text("[tool.ruff]\n")
    found = rule_files.load(None, str(inside)).rules
    assert [one.name for one in found.rules] == ["one"]
    assert found.file == str(tmp_path / "pyproject.toml")


def test_a_file_that_was_named_comes_before_it(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.holdfast.rules.one]\n{RULE}")
    for head in ("[rules.two]", "[tool.holdfast.rules.two]"):
        (tmp_path / "own.toml").write_text(f"{head}\n{RULE}")
        found = rule_files.load(str(tmp_path / "own.toml"), str(tmp_path)).rules
        assert [one.name for one in found.rules] == ["two"]


def test_a_pyproject_that_is_no_toml_keeps_no_job_from_starting(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.holdfast\n")
    found = rule_files.load(None, str(tmp_path))
    assert found.rules.rules == ()
    assert "no rules of your own are used" in found.remark
    assert "is not valid TOML" in found.remark


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "there is no file"),
        ("[x\n", "is not valid TOML"),
        ("[tool.ruff]\n", "has no rules"),
        ("rules = 3\n", "rules must be tables"),
        ("[rules.a]\nmeans = 'x'\n", "rule 'a' has no pattern"),
    ],
)
def test_a_file_that_was_named_must_have_rules(
    tmp_path: Path, content: str | None, sentence: str
) -> None:
    path = tmp_path / "own.toml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError) as refused:
        rule_files.load(str(path), str(tmp_path))
    assert sentence in refused.value.sentence


def test_a_rule_is_not_called_as_a_fault_is(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(f"[rules.disk-full]\n{RULE}")
    found = rule_files.load(str(path), str(tmp_path)).rules
    with pytest.raises(ConfigError, match="is the name of a fault"):
        catalogue.refuse_names_of_faults(found)
