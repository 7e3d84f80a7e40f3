"""A checkpoint is read by anything, beside the training, and nothing is changed by it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import holdfast
from holdfast.checkpoint import reader_lock
from holdfast.checkpoint.lock import FolderLock
from holdfast.checkpoint.reading import find
from holdfast.errors import ConfigError, EnvironmentFailure
from tests.checkpoint.reading.small_checkpoint import (
    equal,
    flip_a_bit,
    optimizer_of,
    save,
    small_model,
)
from tests.checkpoint.reading.two_ranks import TwoRanks

READ_ONLY = (
    *("unshare", "-rm", "sh", "-ec"),
    'mount --bind "$1" "$1"; mount -o remount,bind,ro "$1"; ! touch "$1/x" 2>&-; shift; exec "$@"',
    "sh",
)
pytestmark = pytest.mark.xdist_group("two-ranks")


def tree_of(folder: Path) -> dict[str, int]:
    return {str(path): path.lstat().st_mtime_ns for path in folder.rglob("*")}


def test_a_model_and_an_optimizer_take_what_was_saved(tmp_path: Path) -> None:
    model = save(tmp_path, steps=2, config={"lr": 0.1})
    other = small_model(seed=1)
    optimizer = optimizer_of(other)
    with holdfast.load(tmp_path, model=other, optimizer=optimizer) as saved:
        assert (saved.step, saved.epoch, saved.config) == (2, 0, {"lr": "0.1"})
        assert saved.extras == {"best": 0.5}
        assert saved.path == str(tmp_path / "step-000000002")
    assert equal(model, other)
    assert optimizer.state_dict()["state"][0]["step"] == 2


def test_without_a_model_the_tensors_have_the_models_names(tmp_path: Path) -> None:
    model = save(tmp_path)
    with holdfast.load(tmp_path / "step-000000001") as saved:
        assert list(saved.model) == list(model.state_dict())
        assert all(torch.equal(saved.model[n], t) for n, t in model.state_dict().items())
        assert saved.optimizer is not None
        assert saved.optimizer["param_groups"][0]["lr"] == 0.1
        assert "generators" in saved.of_rank(0)
        other = small_model(seed=1)
        other.load_state_dict(saved.model)
    assert equal(model, other)


def test_a_tensor_that_was_read_outlives_the_checkpoint(tmp_path: Path) -> None:
    model = save(tmp_path)
    with holdfast.load(tmp_path) as saved:
        weight = saved.model["0.weight"]
    shutil.rmtree(tmp_path)
    weight += 0
    assert torch.equal(weight, model.state_dict()["0.weight"])


def test_it_works_beside_a_job_that_holds_the_folder(tmp_path: Path) -> None:
    save(tmp_path)
    lock = FolderLock(str(tmp_path))
    lock.take()
    unfinished = tmp_path / ".tmp-step-000000009-ab"
    unfinished.mkdir()
    before = tree_of(tmp_path)
    try:
        assert holdfast.load(tmp_path).step == 1
    finally:
        lock.release()
    assert tree_of(tmp_path) == before, "nothing swept, moved or written"


def test_a_read_only_disk_will_do(tmp_path: Path) -> None:
    save(tmp_path)
    script = "import sys, holdfast; print('step', holdfast.load(sys.argv[1]).step)"
    done = subprocess.run(
        [*READ_ONLY, str(tmp_path), sys.executable, "-c", script, str(tmp_path)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout == "step 1\n", done.stderr


def test_damage_is_left_in_place_and_the_one_before_is_read(tmp_path: Path) -> None:
    save(tmp_path)
    save(tmp_path)
    flip_a_bit(tmp_path / "step-000000002" / "rank-0.safetensors")
    before = tree_of(tmp_path)
    with holdfast.load(tmp_path) as saved:
        assert saved.step == 1
        assert "rank-0.safetensors" in saved.notes[0]
    assert tree_of(tmp_path) == before
    with pytest.raises(EnvironmentFailure, match=r"rank-0\.safetensors"):
        holdfast.load(tmp_path / "step-000000002")


def test_a_copy_under_another_name_is_a_checkpoint_too(tmp_path: Path) -> None:
    model = save(tmp_path / "ckpts")
    shutil.copytree(tmp_path / "ckpts" / "step-000000001", tmp_path / "best")
    other = small_model(seed=1)
    assert holdfast.load(tmp_path / "best", model=other).step == 1
    assert equal(model, other)


def test_what_does_not_fit_is_refused_before_anything_changes(tmp_path: Path) -> None:
    save(tmp_path)
    other = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 5))
    before = {name: tensor.clone() for name, tensor in other.state_dict().items()}
    with pytest.raises(ConfigError, match=r"model\.2\.weight: \[2, 3\] then, \[5, 3\] now"):
        holdfast.load(tmp_path, model=other)
    assert all(torch.equal(before[n], t) for n, t in other.state_dict().items())


def test_another_dtype_is_converted(tmp_path: Path) -> None:
    model = save(tmp_path)
    half = small_model(seed=1).to(torch.bfloat16)
    holdfast.load(tmp_path, model=half)
    expected = model.state_dict()["0.weight"].to(torch.bfloat16)
    assert torch.equal(half.state_dict()["0.weight"], expected)


@pytest.mark.parametrize("path", ["", "nothing"])
def test_no_checkpoint_is_one_sentence(tmp_path: Path, path: str) -> None:
    with pytest.raises(ConfigError, match=r"no checkpoint in|does not exist"):
        holdfast.load(tmp_path / path)


def test_an_optimizer_needs_its_model(tmp_path: Path) -> None:
    save(tmp_path)
    with pytest.raises(ConfigError, match="give the model"):
        holdfast.load(tmp_path, optimizer=optimizer_of(small_model()))


def test_while_it_is_open_it_is_in_use(tmp_path: Path) -> None:
    """Which retention respects (test_retention.py)."""
    save(tmp_path)
    with holdfast.load(tmp_path) as saved:
        assert reader_lock.in_use(saved.path)
    assert not reader_lock.in_use(saved.path)
    step = holdfast.load(tmp_path, model=small_model()).step
    assert (step, reader_lock.in_use(saved.path)) == (1, False), "dropped, so closed"


def test_one_that_vanishes_after_the_listing_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path)
    save(tmp_path)
    listed = find._newest_first

    def list_then_remove(folder: str) -> list[str]:
        found = listed(folder)
        shutil.rmtree(found[0])
        return found

    monkeypatch.setattr(find, "_newest_first", list_then_remove)
    with holdfast.load(tmp_path) as saved:
        assert (saved.step, saved.notes) == (1, ())


@pytest.mark.parametrize("name", ["manifest.json", "rank-0.json", "rank-0.safetensors"])
@pytest.mark.parametrize("what", ["link", "pipe"])
def test_links_and_pipes_are_not_followed(tmp_path: Path, name: str, what: str) -> None:
    save(tmp_path / "ckpts")
    victim = tmp_path / "ckpts" / "step-000000001" / name
    victim.rename(tmp_path / name)
    if what == "link":
        victim.symlink_to(tmp_path / name)
    else:
        os.mkfifo(victim)
    with pytest.raises(EnvironmentFailure, match=r"regular file|has 0 bytes instead"):
        holdfast.load(tmp_path / "ckpts")


def test_two_ranks_read_plain_and_sharded_into_each_other(two_ranks: TwoRanks) -> None:
    kinds = ("plain", "sharded")
    ways = [f"{one} into {other}" for one in (*kinds, "imported") for other in kinds]
    ways.remove("imported into plain")  # shown in test_round_trips.py
    assert two_ranks.found == {way: [7, []] for way in ways}


@pytest.mark.parametrize("kind", ["plain", "sharded"])
def test_one_process_reads_the_whole_of_a_job_of_two_ranks(two_ranks: TwoRanks, kind: str) -> None:
    expected = two_ranks.model(kind)
    with holdfast.load(two_ranks.folder(kind)) as saved:
        assert saved.model.keys() == expected.keys()
        assert [n for n in expected if not torch.equal(saved.model[n], expected[n])] == []
        assert (saved.epoch, saved.world_size, saved.kind) == (2, 2, kind)
        tied = saved.model.on_disk
        assert tied["embed.weight"].key == tied["head.weight"].key
