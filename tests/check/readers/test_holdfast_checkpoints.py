"""Checkpoints of ours, looked into from outside: the manifest and the sizes, never the digests."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.checkpoints import manifest as manifests
from holdfast.analysis.checkpoints.manifest import FileEntry, Manifest
from holdfast.analysis.machine import CheckpointItem, Unread
from holdfast.check.readers import checkpoints
from holdfast.check.readers.checkpoints import read_checkpoints
from tests.faults.machines import a_plan

FILES = {"rank-0.safetensors": b"t" * 1000, "rank-0.json": b"{}"}


def save(folder: Path, step: int = 1200, **changes: Any) -> Path:
    """As the writer leaves it."""
    path = folder / manifests.folder_name(step)
    path.mkdir(parents=True)
    for name, content in FILES.items():
        (path / name).write_bytes(content)
    entries = tuple(
        FileEntry(name=name, size=len(content), sha256=(hashlib.sha256(content).hexdigest(),))
        for name, content in FILES.items()
    )
    manifest = Manifest(
        schema=manifests.SCHEMA,
        step=step,
        epoch=1,
        world_size=4,
        kind="plain",
        saved_at=time.time() - 300,
        files=entries,
        structure="s",
        config={"lr": "0.1"},
        versions={},
        data="per-rank",
        run="",
        seconds=2.5,
    )
    changed = msgspec.structs.replace(manifest, **changes)
    (path / manifests.MANIFEST).write_bytes(manifests.encode(changed))
    return path


def look(*folders: Path) -> dict[str, CheckpointItem]:
    found = read_checkpoints(a_plan(checkpoint_folders=tuple(map(str, folders))))
    assert not isinstance(found, Unread), found
    return {os.path.basename(item.path): item for item in found}


def test_it_tells_where_it_comes_from(tmp_path: Path) -> None:
    path = save(tmp_path)
    item = look(tmp_path)[path.name]
    assert (item.kind, item.problem, item.step, item.world_size) == ("holdfast", "", 1200, 4)
    assert (item.size, item.files, item.seconds, item.data) == (1002, 3, 2.5, "per-rank")
    assert 299 < item.age < 400
    assert look(path).keys() == {path.name}, "it may be named itself"


def test_two_configurations_are_told_apart(tmp_path: Path) -> None:
    save(tmp_path, 1)
    save(tmp_path, 2)
    save(tmp_path, 3, config={"lr": "0.2"})
    save(tmp_path, 4, config={})
    digests = [item.config for _, item in sorted(look(tmp_path).items())]
    assert digests[0] == digests[1] != digests[2]
    assert digests[3] == ""


def test_what_was_set_aside_or_is_being_written_is_no_checkpoint(tmp_path: Path) -> None:
    save(tmp_path)
    save(tmp_path / manifests.DAMAGED, 1100)
    shutil.copytree(save(tmp_path / "elsewhere", 1300), tmp_path / ".tmp-step-000001300-1f0c9a")
    shutil.rmtree(tmp_path / "elsewhere")
    os.utime(tmp_path / ".tmp-step-000001300-1f0c9a")
    for name in FILES:
        os.utime(tmp_path / ".tmp-step-000001300-1f0c9a" / name)
    assert set(look(tmp_path)) == {"step-000001200"}


@pytest.mark.parametrize("name", [*FILES, manifests.MANIFEST])
@given(share=st.floats(0, 1, exclude_max=True))
def test_cut_at_any_byte_is_a_problem(
    tmp_path_factory: pytest.TempPathFactory, name: str, share: float
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    try:
        path = save(folder)
        os.truncate(path / name, int(share * (path / name).stat().st_size))
        item = look(folder)[path.name]
        assert item.problem.startswith(f"damaged: {name}")
        assert item.step == 1200, "its name still tells"
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("name", [*FILES, manifests.MANIFEST])
def test_a_missing_file_is_a_problem(tmp_path: Path, name: str) -> None:
    path = save(tmp_path)
    (path / name).unlink()
    assert look(tmp_path)[path.name].problem == f"damaged: {name} is missing"


def test_a_manifest_that_leads_out_of_its_folder_is_not_followed(tmp_path: Path) -> None:
    outside = FileEntry(name="../../etc/passwd", size=1, sha256=("0" * 64,))
    path = save(tmp_path, files=(outside,))
    assert look(tmp_path)[path.name].problem == "damaged: ../../etc/passwd is missing"


# --- 'could not look' is never 'healthy' -------------------------------------------------------


def test_a_window_into_the_kernel_is_no_folder_of_checkpoints() -> None:
    found = read_checkpoints(a_plan(checkpoint_folders=("/proc",)))
    assert found == Unread(why="/proc is a window into the kernel (proc), and no disk")


def test_more_than_can_be_looked_at_is_not_called_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "MOST_ENTRIES", 3)
    for number in range(5):
        (tmp_path / f"note{number}.txt").touch()
    found = read_checkpoints(a_plan(checkpoint_folders=(str(tmp_path),)))
    assert isinstance(found, Unread)
    assert "holds over 3 names" in found.why


def test_too_little_time_is_not_called_clean_but_what_was_seen_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path)
    monkeypatch.setattr(checkpoints, "BUDGET", -1.0)
    found = read_checkpoints(a_plan(checkpoint_folders=(str(tmp_path),)))
    assert isinstance(found, Unread)
    assert "only 0 of 1 checkpoints" in found.why
    monkeypatch.undo()
    monkeypatch.setattr(checkpoints, "MOST_ENTRIES", 1)
    (tmp_path / "a.pt").touch()
    (tmp_path / "b.pt").touch()
    shutil.rmtree(tmp_path / "step-000001200")
    assert [item.problem for item in look(tmp_path).values()] == ["empty"]
