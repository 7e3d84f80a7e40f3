"""Which file is damaged, how, and that nothing outside of the drill's folder ever is."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from holdfast.analysis.drill.host_acts import DamageCheckpoint, HideCheckpoints
from holdfast.drill.acts.checkpoint_damage import damage
from holdfast.drill.acts.registry import carrier_of
from holdfast.drill.stage import CannotInjectHere
from tests.drill.acts.stand_in import SECONDS, a_stage, gate_program, started


def saved(path: Path, size: int, at: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(size))
    os.utime(path, (at, at))


def test_one_bit_is_flipped_or_half_is_cut(tmp_path: Path) -> None:
    file = tmp_path / "w"
    saved(file, 1000, 1)
    before = file.read_bytes()
    damage(file, "flip", inside=tmp_path)
    after = file.read_bytes()
    assert sum((a ^ b).bit_count() for a, b in zip(before, after, strict=True)) == 1
    damage(file, "truncate", inside=tmp_path)
    assert file.read_bytes() == after[:500]


@pytest.mark.parametrize("link", ["file", "folder"])
def test_what_is_linked_is_never_touched(tmp_path: Path, link: str) -> None:
    theirs = tmp_path / "theirs" / "w"
    saved(theirs, 1000, 1)
    before = theirs.read_bytes()
    inside = tmp_path / "drill"
    inside.mkdir()
    (inside / "x").symlink_to(theirs if link == "file" else theirs.parent)
    with pytest.raises(CannotInjectHere, match="is a link"):
        damage(inside / "x" if link == "file" else inside / "x" / "w", "flip", inside=inside)
    assert theirs.read_bytes() == before


def test_the_rank_is_killed_with_it(tmp_path: Path) -> None:
    stage, act = a_stage(tmp_path), DamageCheckpoint(how="truncate")
    assert stage.checkpoints is not None
    saved(stage.checkpoints / "step-20.pt", 1000, 1)
    with started(stage, gate_program("")) as rank:
        carrier_of(act).inject(act, stage)
        assert rank.wait(SECONDS) == -signal.SIGKILL
    assert (stage.checkpoints / "step-20.pt").stat().st_size == 500


def test_checkpoints_are_moved_away_within_the_drills_folder(tmp_path: Path) -> None:
    stage, act = a_stage(tmp_path), HideCheckpoints()
    assert stage.checkpoints is not None
    saved(stage.checkpoints / "step-20.pt", 1000, 1)
    with started(stage, gate_program("")) as rank:
        carrier_of(act).inject(act, stage)
        assert rank.wait(SECONDS) == -signal.SIGKILL
    assert not stage.checkpoints.exists()
    assert (stage.folder.path / "hidden" / "step-20.pt").stat().st_size == 1000


def test_a_job_without_a_checkpoint_by_then_is_no_drill(tmp_path: Path) -> None:
    stage, act = a_stage(tmp_path), DamageCheckpoint(how="flip")
    assert stage.checkpoints is not None
    saved(stage.checkpoints / ".tmp-20.pt", 1000, 1)
    with pytest.raises(CannotInjectHere, match="no checkpoint was in ckpts at step 23"):
        carrier_of(act).inject(act, stage)


def test_the_folder_that_the_job_runs_in_stays(tmp_path: Path) -> None:
    stage, act = a_stage(tmp_path), HideCheckpoints()
    stage.checkpoints = stage.folder.work
    with pytest.raises(CannotInjectHere, match="the folder it runs in"):
        carrier_of(act).inject(act, stage)
