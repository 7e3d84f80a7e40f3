"""Sharded state: FSDP2, tensor parallel, both; the same ranks again, and others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import holdfast
from holdfast.checkpoint.exchange import to_dcp, to_huggingface
from holdfast.checkpoint.exchange.bring_in import bring_in
from holdfast.checkpoint.rank_files import RankFiles, TensorFile
from holdfast.errors import ConfigError
from tests.cli.holdfast_command import wait_until

ROOT = Path(__file__).parent.parent.parent
TARGET = ROOT / "tests" / "targets" / "sharded_states.py"
Found = list[dict[str, Any]]
# one launch for all of them, so one worker
pytestmark = pytest.mark.xdist_group("sharded")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sharded")


@pytest.fixture(scope="module")
def found(folder: Path) -> Found:
    """What each of four ranks found: one launch for all tests here."""
    for name in ("reshard", "meshes"):
        (folder / name).mkdir()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    ranks = []
    for rank in range(4):
        with open(folder / f"out-{rank}", "w") as out, open(folder / f"err-{rank}", "w") as err:
            command = [sys.executable, str(TARGET), str(folder), str(folder / "store"), str(rank)]
            ranks.append(
                subprocess.Popen(command, stdout=out, stderr=err, env=environment, cwd=ROOT)
            )
    try:
        wait_until(lambda: _over([rank.poll() for rank in ranks]), seconds=170)
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    said = [(folder / f"err-{rank}").read_text()[-2000:] for rank in range(4)]
    assert [process.returncode for process in ranks] == [0] * 4, "\n".join(said)
    return [json.loads((folder / f"out-{rank}").read_text()) for rank in range(4)]


def _over(codes: list[int | None]) -> bool:
    """All have ended, or one has failed, for which the others would wait."""
    return None not in codes or any(codes)


@pytest.mark.parametrize("mesh", ["same", "same both"])
def test_the_same_ranks_continue_bit_for_bit(found: Found, mesh: str) -> None:
    results = [rank[mesh] for rank in found if rank[mesh]]
    assert len(results) == {"same": 2, "same both": 4}[mesh]
    good = {"losses": True, "statistics": True, "tied": True, "differ": []}
    assert results == [good] * len(results)


def test_other_numbers_of_ranks_get_the_same_whole_tensors(found: Found) -> None:
    """4 -> 2 -> 3 -> 2 times 2 replicas; AdamW's state included; sides that nothing divides."""
    assert [rank["reshard"]["differ"] for rank in found] == [[[]] * 3, [[]] * 3, [[]] * 2, [[]]]


def test_tensor_parallel_becomes_fsdp_alone(found: Found) -> None:
    assert [rank["meshes"]["differ"] for rank in found] == [[[]]] * 4


def test_what_several_ranks_hold_is_written_once(found: Found) -> None:
    """Two replicas take as many bytes as none."""
    first = sum(rank["reshard"]["bytes"][0] for rank in found)
    last = [rank["reshard"]["bytes"][-1] for rank in found]
    assert sum(last) == first
    assert min(last) > 0, "every rank writes some of it"


def test_a_new_plan_is_made_for_changes_only(found: Found) -> None:
    assert [rank["plans"]["numbers"] for rank in found] == [[1, 1, 2, 2, 3, 4]] * 4


def test_what_one_rank_cannot_save_fails_on_all_with_the_same_error(found: Found) -> None:
    said = [rank["plans"]["said"] for rank in found]
    assert said[1].startswith('ConfigError: state["optimizer"]["blocks.0.norm.weight"]["odd"] is a')
    assert {said[0], said[2], said[3]} == {
        said[1].replace("ConfigError:", "EnvironmentFailure: rank 1:")
    }


def test_a_checkpoint_of_sharded_state_is_taken_up_again(found: Found, folder: Path) -> None:
    good = {"steps": [0, 4], "safe": [True, True], "losses": True, "differ": [], "kind": "sharded"}
    results = [rank["checkpoint"] for rank in found]
    assert [{**result, "names": []} for result in results] == [{**good, "names": []}] * 4
    # Steps 4 and 6 at the end of each part, and one that rank 0 had announced before.
    assert [len(result["names"]) for result in results] == [3] * 4
    manifest = json.loads((folder / "checkpoint" / "step-000000006" / "manifest.json").read_text())
    assert (manifest["kind"], manifest["world_size"]) == ("sharded", 4)


@pytest.mark.parametrize("reshard_after_forward", ["true", "false", "some"])
def test_a_save_after_an_evaluation_is_resumed(found: Found, reshard_after_forward: str) -> None:
    assert [rank["evaluated"][reshard_after_forward] for rank in found] == [[True, True, []]] * 4


@pytest.mark.parametrize("how", ["pipeline", "local names per rank", "experts"])
def test_ranks_with_different_parameters_continue_bit_for_bit(found: Found, how: str) -> None:
    assert [rank["parallels"][how] for rank in found] == [["True", True, True]] * 4


def test_stages_of_a_pipeline_become_one_model_over_all_ranks(found: Found) -> None:
    assert [rank["parallels"]["merged"] for rank in found] == [True] * 4


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("local names", "model.layers.0.weight is on ranks 0-1, and on ranks 2-3 in another mesh"),
        ("plain experts", "model.layers.expert.weight is a plain tensor with other values on rank"),
    ],
)
def test_one_name_for_different_tensors_is_refused_by_the_first_save(
    found: Found, how: str, words: str
) -> None:
    [said] = found[0]["parallels"][how]
    assert said.startswith(f"ConfigError: {words}")
    assert [rank["parallels"][how] for rank in found] == [[said]] * 4


def test_stages_of_a_pipeline_are_read_and_exported_whole(
    found: Found, folder: Path, tmp_path: Path
) -> None:
    assert found
    names = {f"layers.layer{i}.{key}" for i in range(4) for key in ("weight", "bias", "seen")}
    with holdfast.load(folder / "parallels" / "pipeline") as saved:
        dcp = to_dcp.export(saved, str(tmp_path / "dcp"))
        hf = to_huggingface.export(saved, str(tmp_path / "hf"), shard_size=10**9)
        model, optimizer = dict(saved.model.items()), saved.optimizer
    assert model.keys() == names
    assert {float(model[f"layers.layer{i}.seen"]) for i in (0, 2)} == {0.0, 2.0}
    assert optimizer is not None
    assert optimizer["state"].keys() == {name for name in names if not name.endswith("seen")}
    assert [len(group["params"]) for group in optimizer["param_groups"]] == [8]
    said = ("layers.layer0.seen and 3 more: each rank saved its own, and those of one rank are "
            "written; for those of another, give --rank N")  # fmt: skip
    assert dcp.notes == hf.notes == (said,)
    exported = TensorFile(str(tmp_path / "hf" / "model.safetensors"))
    assert {name: exported.read(name).tolist() for name in exported.names} == {
        name: value.tolist() for name, value in model.items()
    }
    again = bring_in(str(tmp_path / "dcp"), str(tmp_path / "again"))
    assert (again.tensors, again.notes) == (12 + 3 * 8, ())
    plain = torch.nn.Module()
    plain.layers = torch.nn.ModuleDict({f"layer{i}": torch.nn.Linear(5, 5) for i in range(4)})
    for layer in plain.layers.values():
        layer.register_buffer("seen", torch.zeros(1))
    whole = torch.optim.AdamW(plain.parameters(), lr=0.01)
    holdfast.load(folder / "parallels" / "pipeline", model=plain, optimizer=whole).close()
    assert all(torch.equal(value, model[name]) for name, value in plain.state_dict().items())
    last = whole.state[plain.get_parameter("layers.layer3.weight")]["exp_avg"]
    assert torch.equal(last, optimizer["state"]["layers.layer3.weight"]["exp_avg"])


def test_shards_that_each_rank_saved_for_itself_are_not_called_damaged(
    found: Found, folder: Path, tmp_path: Path
) -> None:
    assert found
    path = folder / "parallels" / "per-rank"
    with pytest.raises(ConfigError, match="each of its 4 ranks saved its own model and optimizer"):
        holdfast.load(path)
    said = r"only its own shards \(model.layers.0.weight: \[3, 5\] of \[5, 5\]\)"
    with holdfast.load(path, rank=2) as saved, pytest.raises(ConfigError, match=said):
        to_huggingface.export(saved, str(tmp_path / "hf"), shard_size=10**9)
    assert not (tmp_path / "hf").exists()


def test_averages_of_the_weights_and_a_second_optimizer_are_saved_in_shards(found: Found) -> None:
    assert [rank["parallels"]["averages"] for rank in found] == [[True] * 4] * 4


def test_a_parameter_that_no_module_of_the_state_has_is_refused(found: Found) -> None:
    [said] = {rank["parallels"]["unnamed"] for rank in found}
    assert "parameter 2 of the optimizer's group 0 ([3]) is in no module of the State" in said


def test_tied_weights_are_written_once_and_nothing_is_pickled(found: Found, folder: Path) -> None:
    saved = folder / "checkpoint" / "step-000000006"
    names = [name for path in saved.glob("*.safetensors") for name in TensorFile(str(path)).names]
    assert "model.enter.weight[2,0]" in names
    assert not [name for name in names if name.startswith("model.leave.weight")]
    index = RankFiles(str(saved), 0).part("sharded")["index"]["tensors"]
    assert index["model.enter.bias"][:2] == ["float32", [6]]
    assert {path.suffix for path in saved.iterdir()} == {".json", ".safetensors"}
