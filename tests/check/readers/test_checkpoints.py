"""Checkpoints as torch really writes them: whole, cut at any byte, left half-way."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.machine import CheckpointItem, Unread
from holdfast.check.readers.checkpoints import MOST_ITEMS, read_checkpoints
from holdfast.check.readers.software import find_torch
from tests.faults.machines import a_plan
from tests.system.sockets import process_that_prints

SAVE = """
import sys, warnings
warnings.simplefilter("ignore")
import torch
import torch.distributed.checkpoint as dcp

folder = sys.argv[1]
state = {"model": {f"w{i}": torch.randn(8, 8) for i in range(6)}, "step": 3, "note": "x" * 40}
torch.save(state, folder + "/model.pt")
torch.save(state, folder + "/old.pth", _use_new_zipfile_serialization=False)
dcp.save(state, checkpoint_id=folder + "/sharded")
"""
HOLD = "import sys; f = open(sys.argv[1]); print('ready', flush=True); sys.stdin.read()"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One save of each kind, made by torch itself."""
    if find_torch() is None:
        pytest.skip("needs torch")
    folder = tmp_path_factory.mktemp("saved")
    subprocess.run([sys.executable, "-c", SAVE, str(folder)], check=True, timeout=100)
    return folder


def look(*folders: Path) -> dict[str, CheckpointItem]:
    plan = a_plan(checkpoint_folders=tuple(str(folder) for folder in folders))
    found = read_checkpoints(plan)
    assert not isinstance(found, Unread), found
    return {os.path.basename(item.path): item for item in found}


def test_whole_checkpoints_have_no_problem(saved: Path) -> None:
    found = look(saved)
    assert {name: (item.kind, item.problem) for name, item in found.items()} == {
        "model.pt": ("torch-file", ""),
        "old.pth": ("torch-file", ""),
        "sharded": ("dcp-folder", ""),
    }
    assert all(item.size > 1000 and item.age < 600 for item in found.values())
    assert look(saved / "sharded").keys() == {"sharded"}


@given(share=st.floats(0, 1, exclude_max=True))
@pytest.mark.parametrize("part", ["model.pt", "sharded/__0_0.distcp", "sharded/.metadata"])
def test_cut_at_any_byte_is_a_problem(
    saved: Path, tmp_path_factory: pytest.TempPathFactory, part: str, share: float
) -> None:
    copy = tmp_path_factory.mktemp("cut")
    item = part.partition("/")[0]
    try:
        if (saved / item).is_dir():
            shutil.copytree(saved / item, copy / item)
        else:
            shutil.copy(saved / item, copy / item)
        size = (saved / part).stat().st_size
        os.truncate(copy / part, int(share * size))
        assert look(copy)[item].problem
    finally:
        shutil.rmtree(copy)


def test_what_cannot_be_read_is_not_called_damaged(tmp_path: Path) -> None:
    (tmp_path / "step-000000001" / "manifest.json").mkdir(parents=True)  # no file to open
    (tmp_path / "model.pt").write_bytes(b"")
    found = look(tmp_path)
    assert found["step-000000001"].problem == "cannot be read: EISDIR"
    assert found["step-000000001"].unreadable
    assert found["model.pt"].problem
    assert not found["model.pt"].unreadable


def test_a_sharded_save_that_died_lacks_its_metadata_or_a_shard(
    saved: Path, tmp_path: Path
) -> None:
    shutil.copytree(saved / "sharded", tmp_path / "early")
    (tmp_path / "early" / ".metadata").unlink()
    shutil.copytree(saved / "sharded", tmp_path / "torn")
    (tmp_path / "torn" / "__0_0.distcp").unlink()
    found = look(tmp_path)
    assert found["early"].problem.startswith("incomplete: .metadata")
    assert found["early"].incomplete
    assert "__0_0.distcp, which is not there" in found["torn"].problem


def test_files_that_are_empty_or_zeros_never_reached_the_disk(tmp_path: Path) -> None:
    (tmp_path / "a.pt").touch()
    (tmp_path / "b.ckpt").write_bytes(bytes(4096))
    (tmp_path / "tokens.bin").write_bytes(bytes(4096))
    found = look(tmp_path)
    assert found["a.pt"].problem == "empty"
    assert "zeros" in found["b.ckpt"].problem
    assert found["tokens.bin"].problem == "", "a .bin may be anything"


def temporary(folder: Path, name: str, *, age: float) -> Path:
    path = folder / name
    path.write_bytes(b"x" * 100)
    os.utime(path, (time.time() - age,) * 2)
    return path


@pytest.mark.parametrize("name", ["model.pt.tmp", "model.pt.tmp.4711", ".tmp-7", "w.incomplete"])
def test_a_temporary_that_no_process_holds_was_left_behind(tmp_path: Path, name: str) -> None:
    temporary(tmp_path, name, age=60)
    item = look(tmp_path)[name]
    assert (item.kind, item.size) == ("temporary", 100)
    assert "last written 1 minute ago, and no process here has it open" in item.problem


def test_a_temporary_that_is_being_written_is_no_leftover(tmp_path: Path) -> None:
    path = temporary(tmp_path, "model.pt.tmp", age=60)
    temporary(tmp_path, "just-closed.pt.tmp", age=0)
    with process_that_prints(HOLD, str(path)):
        assert look(tmp_path) == {}
        temporary(tmp_path, "model.pt.tmp", age=3600)
        assert "last written 1 hour ago" in look(tmp_path)["model.pt.tmp"].problem


def test_only_the_newest_are_listed_two_levels_deep(tmp_path: Path) -> None:
    for number in range(30):
        folder = tmp_path / f"step{number}"
        folder.mkdir()
        (folder / f"{number}.pt").touch()
        os.utime(folder / f"{number}.pt", (number, number))
    deeper = tmp_path / "step0" / "deeper"
    deeper.mkdir()
    (deeper / "too-deep.pt").touch()
    found = look(tmp_path)
    assert set(found) == {f"{number}.pt" for number in range(30 - MOST_ITEMS, 30)}


def test_a_name_that_is_no_text_still_travels(tmp_path: Path) -> None:
    with open(os.fsencode(tmp_path) + b"/\xff.pt", "wb"):
        pass
    (item,) = look(tmp_path).values()
    assert msgspec.json.decode(msgspec.json.encode(item), type=CheckpointItem) == item


def test_a_folder_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert look(tmp_path / "none") == {}
