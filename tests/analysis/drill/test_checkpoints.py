"""Checkpoints in a listing, as scripts and trainers name them."""

from __future__ import annotations

import pytest

from holdfast.analysis.drill import checkpoints
from holdfast.analysis.drill.checkpoints import CheckpointFolder


def listing(*paths: str, size: int = 1000) -> list[tuple[str, int, float]]:
    """One after the other, a second apart; those with equal folders get other sizes."""
    return [(path, size + number, float(number)) for number, path in enumerate(paths)]


def found(*paths: str) -> CheckpointFolder:
    answer = checkpoints.find(listing(*paths))
    assert answer is not None
    return answer


@pytest.mark.parametrize(
    ("paths", "folder", "entries"),
    [
        (
            ["ckpts/step-000000010/rank-0.safetensors", "ckpts/step-000000010/rank-1.safetensors",
             "ckpts/step-000000010/manifest.json", "ckpts/step-000000020/rank-0.safetensors",
             "ckpts/step-000000020/manifest.json"],
            "ckpts",
            [("ckpts/step-000000010", 10), ("ckpts/step-000000020", 20)],
        ),
        (
            ["out/checkpoint-10/model.safetensors", "out/checkpoint-10/optimizer.pt",
             "out/checkpoint-10/trainer_state.json", "out/checkpoint-20/model.safetensors"],
            "out",
            [("out/checkpoint-10", 10), ("out/checkpoint-20", 20)],
        ),
        (
            ["lightning_logs/version_0/checkpoints/epoch=0-step=10.ckpt",
             "lightning_logs/version_0/checkpoints/epoch=1-step=20.ckpt",
             "lightning_logs/version_0/hparams.yaml"],
            "lightning_logs/version_0/checkpoints",
            [("lightning_logs/version_0/checkpoints/epoch=0-step=10.ckpt", 10),
             ("lightning_logs/version_0/checkpoints/epoch=1-step=20.ckpt", 20)],
        ),
        (["last.pt"], "", [("last.pt", None)]),
        (["ckpts/last.pt", "train.log"], "ckpts", [("ckpts/last.pt", None)]),
        (["ckpts/epoch-3.pth"], "ckpts", [("ckpts/epoch-3.pth", None)]),
        (["a/model_0040.pt", "a/model_0050.pt"], "a",
         [("a/model_0040.pt", 40), ("a/model_0050.pt", 50)]),
        (
            ["ds/global_step5/mp_rank_00_model_states.pt", "ds/global_step5/zero_pp_rank_0.pt",
             "ds/latest"],
            "ds",
            [("ds/global_step5", 5)],
        ),
        (["save/iter_0000100/mp_rank_00/model_optim_rng.pt"], "save",
         [("save/iter_0000100", 100)]),
        (["dcp/now/__0_0.distcp", "dcp/now/__1_0.distcp", "dcp/now/.metadata"], "dcp",
         [("dcp/now", None)]),
        (["state/model.pt", "state/optimizer.pt", "state/rng_state_0.pth"], "state",
         [("state", None)]),
    ],
)  # fmt: skip
def test_the_folder_and_what_is_in_it(
    paths: list[str], folder: str, entries: list[tuple[str, int | None]]
) -> None:
    answer = found(*paths)
    assert answer.path == folder
    assert [(entry.path, entry.number) for entry in answer.whole] == entries
    assert answer.newest
    assert answer.newest.path == entries[-1][0]


@pytest.mark.parametrize(
    "unfinished",
    [
        ["ckpts/.tmp-step-000000030-1f0c9a/rank-0.safetensors"],
        ["ckpts/step-000000030/rank-0.safetensors"],  # without its manifest
        ["ckpts/tmp-checkpoint-30/model.safetensors"],
        ["ckpts/last.pt.tmp"],
        ["ckpts/last.pt.partial"],
        ["ckpts/.last.pt.x7"],
        ["ckpts/tmp-last.pt"],
        ["ckpts/step_30/__0_0.distcp"],  # without its metadata
    ],
)
def test_what_is_not_finished_is_none(unfinished: list[str]) -> None:
    answer = found("ckpts/step_20.pt", *unfinished)
    assert answer.path == "ckpts"
    assert [entry.path for entry in answer.whole] == ["ckpts/step_20.pt"]


@pytest.mark.parametrize(
    "paths",
    [
        [],
        ["train.py", "metrics.json", "data.csv"],
        ["runs/260101-train/rank-0.pt"],
        ["ckpts/damaged/step-000000010/rank-0.safetensors"],
        [".cache/torch/model.pt"],
    ],
)
def test_no_checkpoint_at_all(paths: list[str]) -> None:
    assert checkpoints.find(listing(*paths)) is None
    assert checkpoints.folder(listing(*paths)) is None


def test_the_largest_file_is_the_one_to_damage() -> None:
    answer = checkpoints.find([
        ("c/checkpoint-10/model.safetensors", 500, 1.0),
        ("c/checkpoint-10/optimizer.pt", 1000, 2.0),
        ("c/checkpoint-10/rng_state.pth", 10, 3.0),
    ])  # fmt: skip
    assert answer
    assert answer.newest
    assert answer.newest.largest == "c/checkpoint-10/optimizer.pt"


def test_a_step_that_was_reached_again_is_the_newest() -> None:
    answer = found(
        "c/step-000000010/r.safetensors", "c/step-000000010/manifest.json",
        "c/step-000000020/r.safetensors", "c/step-000000020/manifest.json",
        "c/step-000000010.2/r.safetensors", "c/step-000000010.2/manifest.json",
    )  # fmt: skip
    assert answer.newest
    assert answer.newest.path == "c/step-000000010.2"


def test_of_several_folders_the_one_with_most_and_the_others_are_said() -> None:
    answer = found("best/model.pt", "ckpts/step_10.pt", "ckpts/step_20.pt")
    assert (answer.path, answer.others) == ("ckpts", ("best",))
