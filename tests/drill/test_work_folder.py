"""The folder that a drilled job runs in: it can read what it needs, and finds no checkpoint."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from holdfast.analysis.drill import checkpoints
from holdfast.drill import work_folder
from holdfast.drill.layout import JobFolder
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
    assert (work / "data").is_symlink()
    assert sorted(entry.name for entry in work.iterdir()) == ["config.yaml", "data", "train.py"]
    assert (work / "data" / "part.csv").read_text() == "data/part.csv"


def test_small_files_are_copied_since_a_script_may_write_over_them(
    source: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hydra's main.log, of an earlier run."""
    monkeypatch.setattr(work_folder, "COPIED", 30)
    for name in ("main.log", "tiny.npz", "zlast.log"):
        (source / name).write_text("earlier")
    (source / "large.csv").write_bytes(b"x" * (work_folder.SMALL + 1))
    work_folder.fill(work, source, [])
    linked = {entry.name for entry in work.iterdir() if entry.is_symlink()}
    assert linked == {"data", "large.csv", "tiny.npz", "zlast.log"}
    (work / "main.log").write_text("new")
    assert (source / "main.log").read_text() == "earlier"
    written = {path for path, _, _ in JobFolder(work.parent).listing()}
    assert written == {"config.yaml", "main.log", "train.py"}
    assert checkpoints.find(JobFolder(work.parent).listing()) is None


@pytest.mark.parametrize(
    ("name", "content", "left_out"),
    [
        ("train.bin", b"\x12\x34" * 50, False),
        ("pytorch_model.bin", b"PK\x03\x04 and so on", True),
        ("old_model.bin", b"\x80\x02\x8a\nl\xfc", True),
        ("meta.pkl", pickle.dumps({"stoi": {"a": 1}}), False),
        ("state.pkl", b"\x80\x04ctorch._utils\n_rebuild_tensor_v2\n", True),
        ("large.pkl", bytes(work_folder.MIB + 1), True),
    ],
)
def test_what_is_called_as_data_are_is_told_by_what_is_in_it(
    source: Path, work: Path, name: str, content: bytes, left_out: bool
) -> None:
    (source / "tokens").mkdir()
    (source / "tokens" / name).write_bytes(content)
    work_folder.fill(work, source, [])
    assert (work / "tokens").exists() != left_out
    assert ("tokens" in work_folder.left_out(source)) == left_out


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
