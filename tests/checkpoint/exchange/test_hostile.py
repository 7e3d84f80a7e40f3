"""What others have made may be forged: nothing of it is run, nothing leads out of its folder."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.state_dict_saver import save

from holdfast.checkpoint.exchange.bring_in import bring_in
from holdfast.checkpoint.exchange.contents import sort_out
from holdfast.checkpoint.exchange.dcp_metadata import read_metadata
from holdfast.errors import ConfigError

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


class Bomb:
    """Runs when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.trace),)


@pytest.fixture
def dcp(tmp_path: Path) -> Path:
    state = {"model": {"w": torch.arange(6.0).reshape(2, 3)}, "step": 4}
    save(state, checkpoint_id=tmp_path / "dcp", no_dist=True)
    return tmp_path / "dcp"


def rewritten(folder: Path, **changes: Any) -> None:
    """The metadata with other fields."""
    found = read_metadata(str(folder))
    for name, value in changes.items():
        setattr(found, name, value)
    (folder / ".metadata").write_bytes(pickle.dumps(found))


def refused(source: Path, match: str) -> None:
    target = source.parent / "ckpts"
    with pytest.raises(ConfigError, match=match):
        bring_in(str(source), str(target))
    assert not target.exists()


def test_the_untouched_one_is_taken(dcp: Path) -> None:
    assert bring_in(str(dcp), str(dcp.parent / "ckpts")).step == 4


def test_metadata_that_would_run_something(dcp: Path) -> None:
    (dcp / ".metadata").write_bytes(pickle.dumps(Metadata({}, planner_data=Bomb(dcp / "ran"))))
    refused(dcp, r"posix\.mkdir, which DCP never writes")
    assert not (dcp / "ran").exists()


def test_a_value_that_would_run_something(tmp_path: Path) -> None:
    state = {"model": {"w": torch.zeros(2)}, "args": Bomb(tmp_path / "ran")}
    save(state, checkpoint_id=tmp_path / "dcp", no_dist=True)
    made = bring_in(str(tmp_path / "dcp"), str(tmp_path / "ckpts"))
    assert "left out: args" in made.notes
    assert not (tmp_path / "ran").exists()


def test_a_torch_save_file_that_would_run_something(tmp_path: Path) -> None:
    torch.save({"model": {"w": torch.zeros(2)}, "x": Bomb(tmp_path / "ran")}, tmp_path / "m.pt")
    refused(tmp_path / "m.pt", "without running code")
    assert not (tmp_path / "ran").exists()


def test_paths_out_of_the_folder(dcp: Path) -> None:
    places = read_metadata(str(dcp)).storage_data
    for place in places.values():
        place.relative_path = f"../{dcp.name}/{place.relative_path}"
    rewritten(dcp, storage_data=places)
    refused(dcp, "leads out of its folder")


def test_a_link_is_not_followed(dcp: Path) -> None:
    [file] = dcp.glob("*.distcp")
    file.rename(dcp.parent / "elsewhere")
    file.symlink_to(dcp.parent / "elsewhere")
    refused(dcp, "not a regular file")


def test_a_tensor_larger_than_the_disk(dcp: Path) -> None:
    about = read_metadata(str(dcp)).state_dict_metadata
    about["model.w"].size = torch.Size([10**15])  # type: ignore[union-attr]
    rewritten(dcp, state_dict_metadata=about)
    refused(dcp, "larger than all files together")


def test_pieces_with_a_gap(dcp: Path) -> None:
    about = read_metadata(str(dcp)).state_dict_metadata
    about["model.w"].chunks[0].sizes = torch.Size([1, 3])  # type: ignore[union-attr]
    rewritten(dcp, state_dict_metadata=about)
    refused(dcp, "do not make a whole")


@pytest.mark.parametrize(
    "text", [b"", b"\x80\x04.", b"\xff" * 100, pickle.dumps([1]), pickle.dumps({"a": 1})]
)
def test_metadata_that_is_something_else(dcp: Path, text: bytes) -> None:
    (dcp / ".metadata").write_bytes(text)
    refused(dcp, "is not read")


@pytest.mark.parametrize("where", ['"../x.safetensors"', '"/etc/passwd"', "7", "[[]]"])
def test_an_index_that_leads_elsewhere(tmp_path: Path, where: str) -> None:
    (tmp_path / "hf").mkdir()
    index = tmp_path / "hf" / "model.safetensors.index.json"
    index.write_text(f'{{"weight_map": {{"w": {where}}}}}')
    refused(tmp_path / "hf", r"leads out of its folder|is not read")


@pytest.mark.parametrize(
    "text", [b"", b"\xff" * 8, b"\x02\0\0\0\0\0\0\0{}", (8).to_bytes(8, "little") + b"[[[[[[[["]
)
def test_safetensors_that_are_none(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "m.safetensors").write_bytes(text)
    refused(tmp_path / "m.safetensors", "is not read|no model in it")


@pytest.mark.parametrize("text", [b"", b"PK\x03\x04 nonsense", b"plain text"])
def test_torch_save_files_that_are_none(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "m.pt").write_bytes(text)
    refused(tmp_path / "m.pt", r"m\.pt")


# --- what is what ---------------------------------------------------------------------------------


def sorted_out(found: dict[Any, Any]) -> Any:
    return sort_out(found, lambda value: isinstance(value, complex))  # 1j plays a tensor


@pytest.mark.parametrize("key", ["model", "model_state_dict", "state_dict", "module"])
def test_a_model_by_its_key(key: str) -> None:
    found = sorted_out({key: {"w": 1j}, "epoch": 2, "iteration": 5, "loss": 0.1})
    assert (found.model, found.step, found.epoch) == ({"w": 1j}, 5, 2)
    assert found.notes == ["left out: loss"]


def test_an_application_around_it() -> None:
    assert sorted_out({"app": {"model": {"w": 1j}, "step": 3}}).step == 3


@pytest.mark.parametrize("step", [-1, 1.5, True, "7", 10**18, None])
def test_a_step_that_is_none(step: object) -> None:
    assert sorted_out({"model": {"w": 1j}, "step": step}).step is None


def test_flattened_optimizer_state() -> None:
    flat = {"state.a.w.exp_avg": 1j, "param_groups.a.w.lr": 0.1, "param_groups.b.lr": 0.2}
    found = sorted_out({"model": {"a.w": 1j, "b": 1j}, "optimizer": flat}).optimizer
    assert found == {
        "state": {"a.w": {"exp_avg": 1j}},
        "param_groups": [{"lr": 0.1, "params": ["a.w"]}, {"lr": 0.2, "params": ["b"]}],
    }


def test_no_model_at_all_names_the_keys() -> None:
    with pytest.raises(ConfigError, match="its keys are 'a', 'b'"):
        sorted_out({"a": 1, "b": 2})


def test_two_names_that_would_be_one() -> None:
    with pytest.raises(ConfigError, match="one name"):
        sorted_out({"a._orig_mod.w": 1j, "a.w": 1j})
