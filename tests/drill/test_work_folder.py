"""The folder that a drilled job runs in: it can read what it needs, and finds no checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.drill import work_folder
from holdfast.errors import ConfigError


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for name in ("train.py", "data/part.csv", "ckpts/step-10/rank-0.safetensors", "last.pt",
                 ".secret", "runs/latest/x", "deep/er/model.ckpt", "config.yaml"):  # fmt: skip
        file = tmp_path / "home" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    return tmp_path / "home"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def test_what_it_reads_is_there_and_what_it_saved_is_not(source: Path, work: Path) -> None:
    work_folder.fill(work, source, [])
    assert sorted(entry.name for entry in work.iterdir()) == ["config.yaml", "data", "train.py"]
    assert (work / "data" / "part.csv").read_text() == "data/part.csv"


def test_what_may_be_data_is_told(source: Path) -> None:
    assert work_folder.left_out(source) == ["ckpts", "deep", "last.pt"]


def test_more_is_linked_when_asked_for(source: Path, work: Path) -> None:
    work_folder.fill(work, source, ["last.pt", "deep/er", "data"])
    assert (work / "last.pt").read_text() == "last.pt"
    assert (work / "deep" / "er" / "model.ckpt").exists()
    with pytest.raises(ConfigError, match="--link gone"):
        work_folder.fill(work / "deep", source, ["gone"])


def test_the_script_is_found_from_there(source: Path, work: Path) -> None:
    words = ["train.py", "--out={folder}/x", "{folder}"]
    found = work_folder.script_in(words, [], source, work)
    assert found == [str(source / "train.py"), f"--out={work}/x", str(work)]
    assert work_folder.script_in(["train.py"], ["-m"], source, work) == ["train.py"]
