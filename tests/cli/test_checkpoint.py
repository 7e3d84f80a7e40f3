"""`holdfast checkpoint …` as a user runs it: what it prints, what it exits with, without torch."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from holdfast.checkpoint import reader_lock
from tests.checkpoint.reading.small_checkpoint import flip_a_bit, save, small_model

NO_TORCH = "import sys; sys.modules['torch'] = None; import holdfast.__main__"


def run(*words: object, torch_too: bool = False) -> subprocess.CompletedProcess[str]:
    """Without torch, unless it is needed."""
    start = ["-m", "holdfast"] if torch_too else ["-c", f"{NO_TORCH} as m; sys.exit(m.main())"]
    return subprocess.run(
        [sys.executable, *start, "checkpoint", *map(str, words)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def answer(done: subprocess.CompletedProcess[str]) -> Any:
    found = json.loads(done.stdout)
    assert (found["schema"], found["command"]) == ("holdfast/1", "checkpoint")
    return found


# ranks are started once for all of them, so one worker
pytestmark = pytest.mark.xdist_group("checkpoint-command")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Steps 1, 2 and 3; 2 is damaged, one was set aside, one is unfinished."""
    place = tmp_path_factory.mktemp("ckpts")
    for _ in range(3):
        save(place, config={"lr": 0.1}, keep=9, keep_every_steps=2)
    flip_a_bit(place / "step-000000002" / "rank-0.safetensors")
    aside = place / "damaged" / "step-000000000"
    aside.mkdir(parents=True)
    (aside / "why.txt").write_text("rank-0.json \x1b[31mis missing\n")
    (place / ".tmp-step-000000009-ab").mkdir()
    return place


def test_ls(folder: Path) -> None:
    with reader_lock.hold(str(folder / "step-000000003")):
        done = run("ls", folder)
    assert done.returncode == 0, done.stderr
    rows = [line.split()[:2] for line in done.stdout.splitlines() if not line.startswith(" ")]
    assert rows[1:] == [
        ["step-000000003", "complete"],
        ["step-000000002", "complete"],
        ["step-000000001", "complete"],
        ["step-000000000", "set"],
        [".tmp-step-000000009-ab", "unfinished"],
    ]
    assert "being read" in done.stdout.splitlines()[1]
    assert "kept for good" in done.stdout.splitlines()[2]
    assert "not verified" in done.stderr
    assert "\x1b" not in done.stdout


def test_ls_that_verifies(folder: Path) -> None:
    done = run("ls", folder, "--verify", "--json")
    assert done.returncode == 1
    found = {each["step"]: each for each in answer(done)["checkpoints"]}
    assert [found[step]["verified"] for step in (3, 2, 1, 0, 9)] == [True, False, True, None, None]


def test_verify_names_the_file_and_the_piece(folder: Path) -> None:
    assert run("verify", folder / "step-000000003").returncode == 0
    done = run("verify", folder)
    assert done.returncode == 1
    assert "rank-0.safetensors, bytes 0 to" in done.stdout
    assert "/s" in done.stderr
    [damaged] = [each for each in answer(run("verify", folder, "--json"))["checkpoints"]
                 if each["damaged"]]  # fmt: skip
    assert damaged["damaged"][0]["file"] == "rank-0.safetensors"


@pytest.mark.parametrize(
    ("name", "writer"),
    [
        ("checkpoint-40/trainer_state.json", "a Hugging Face Trainer"),
        ("epoch=1.ckpt", "Lightning"),
        ("notes.txt", ""),
    ],
)
def test_verify_says_whose_the_folder_is(tmp_path: Path, name: str, writer: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    done = run("verify", tmp_path)
    assert done.returncode == 2
    assert f"no checkpoint of holdfast in {tmp_path}" in done.stderr
    assert ("no digests to verify" in done.stderr) is bool(writer)
    assert writer in done.stderr


def test_diff_of_equal_ones_needs_no_torch(folder: Path) -> None:
    one = folder / "step-000000001"
    done = run("diff", one, one)
    assert (done.returncode, done.stdout) == (0, "tensors: all 27 equal\n"), done.stderr


def test_diff_says_by_how_much(tmp_path: Path) -> None:
    model = small_model()
    save(tmp_path / "a", model=model, config={"lr": 0.1}, steps=0)
    with torch.no_grad():
        model.state_dict()["0.weight"][0, 0] += 0.5
        model.state_dict()["0.bias"][0] = float("nan")
    save(tmp_path / "b", model=model, config={"lr": 0.2}, steps=0)
    done = run("diff", tmp_path / "a", tmp_path / "b", torch_too=True)
    assert done.returncode == 1
    assert "config.lr: 0.1 | 0.2" in done.stdout
    assert "model.0.weight (float32 [3, 4]): differs by up to 0.5" in done.stdout
    assert "model.0.bias (float32 [3]): differs by up to 0, 1 NaN in one only" in done.stdout
    found = answer(run("diff", tmp_path / "a", tmp_path / "b", "--json"))["difference"]
    assert {each["name"] for each in found["tensors"]} == {"model.0.weight", "model.0.bias"}
    assert found["tensors"][0]["max_abs"] is None, "without torch: they differ, not by how much"


@pytest.mark.long  # tests/checkpoint/exchange has the round trips
def test_export_and_import(folder: Path, tmp_path: Path) -> None:
    step = folder / "step-000000003"
    for kind in ("hf", "dcp"):
        done = run("export", step, tmp_path / kind, "--to", kind, torch_too=True)
        assert (done.returncode, done.stdout) == (0, f"{tmp_path / kind}\n"), done.stderr
        assert "Warning" not in done.stderr
        again = run("export", step, tmp_path / kind, "--to", kind, torch_too=True)
        assert (again.returncode, "exists already" in again.stderr) == (2, True)
    done = run("import", tmp_path / "hf", tmp_path / "new", "--step", 8, "--json", torch_too=True)
    assert answer(done)["made"]["step"] == 8, done.stderr
    assert "imported from safetensors hf" in run("ls", tmp_path / "new").stdout


NOTHING: list[Callable[[Path], list[object]]] = [
    lambda place: ["ls", place / "none"],
    lambda place: ["verify", place],
    lambda place: ["diff", place, place],
    lambda place: ["export", place, place / "out", "--to", "hf"],
    lambda place: ["import", place, place / "out"],
    lambda place: ["import", place / "none", place / "out"],
    lambda _: ["export", "a", "b", "--to", "tar"],
    lambda _: ["import", "a", "b", "--step", "-1"],
    lambda _: [],
]


@pytest.mark.parametrize("words", NOTHING)
def test_bad_usage_is_a_sentence_and_exit_code_2(
    words: Callable[[Path], list[object]], tmp_path: Path
) -> None:
    done = run(*words(tmp_path), torch_too=True)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
