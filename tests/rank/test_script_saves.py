"""What a script saves by itself: seen when it begins, told when it is on the disk."""

from __future__ import annotations

import io
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.rank import events, own_page, script_saves
from holdfast.rank.script_saves import kind_of
from holdfast.rank.step_counter import StepCounter

torch = pytest.importorskip("torch")
dcp: Any = pytest.importorskip("torch.distributed.checkpoint")
saver: Any = pytest.importorskip("torch.distributed.checkpoint.state_dict_saver")


@pytest.fixture
def model() -> Any:
    return torch.nn.Linear(2, 2)


@pytest.fixture
def optimizer(model: Any) -> Any:
    return torch.optim.AdamW(model.parameters())


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, optimizer: Any) -> Iterator[Path]:
    """The file of what this process tells as rank 0, after step 7; each save is told at once."""
    file = tmp_path / "events.jsonl"
    steps = StepCounter()
    steps.count = 7
    # As they are: they get wrapped.
    monkeypatch.setattr(torch.serialization, "_check_save_filelike",
                        torch.serialization._check_save_filelike)  # fmt: skip
    monkeypatch.setattr(saver, "_storage_setup", saver._storage_setup)
    monkeypatch.setattr(events, "_file", str(file))
    monkeypatch.setattr(own_page, "page", object())
    monkeypatch.setattr(own_page, "steps", steps)
    monkeypatch.setattr(script_saves, "saves", None)
    monkeypatch.setattr(script_saves, "TELL_EVERY", 0.0)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.chdir(tmp_path)
    registered = sys.modules["torch.optim.optimizer"]._global_optimizer_pre_hooks
    hooks = dict(registered)
    script_saves.follow(torch)
    optimizer.step()
    yield file
    registered.clear()
    registered.update(hooks)


def tells(file: Path) -> list[tuple[str, int, bool]]:
    lines = file.read_text().splitlines() if file.exists() else []
    found = [json.loads(line) for line in lines]
    assert {one["kind"] for one in found} <= {"script-saved"}
    return [(one["path"], one["step"], one["optimizer"]) for one in found]


def test_what_is_a_checkpoint(model: Any, optimizer: Any) -> None:
    weights, state = model.state_dict(), optimizer.state_dict()
    assert kind_of(torch, state) == "bare optimizer"
    assert kind_of(torch, {"epoch": 3, "model": weights, "opt": state}) == "optimizer"
    assert kind_of(torch, {"state_dict": weights, "optimizer_states": [state]}) == "optimizer"
    assert kind_of(torch, {"MODEL_STATE": weights, "EPOCHS_RUN": 3}) == "model"
    assert kind_of(torch, weights) == kind_of(torch, model) == "model"
    for other in (torch.ones(2), {"rng": torch.ones(2)}, [1, 2], None, "state"):
        assert not kind_of(torch, other)


def test_a_save_is_told_at_the_next_step(told: Path, model: Any, optimizer: Any) -> None:
    whole = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(whole, "ckpt.pt")
    torch.save({"rng": torch.get_rng_state()}, "rng.pt")
    assert tells(told) == []
    optimizer.step()
    assert tells(told) == [("ckpt.pt", 7, True)]
    optimizer.step()
    assert len(tells(told)) == 1
    torch.save(whole, "ckpt.pt")  # over the one before
    torch.save(model.state_dict(), Path("best.pt"))
    optimizer.step()
    assert tells(told)[1:] == [("ckpt.pt", 7, True)], "rather than the weights alone"


def test_where_it_was_saved(told: Path, model: Any, optimizer: Any) -> None:
    whole = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    Path("out/checkpoint-7").mkdir(parents=True)
    torch.save(optimizer.state_dict(), "out/checkpoint-7/optimizer.pt")  # as the HF Trainer does
    optimizer.step()
    torch.save(whole, "out/ckpt.pt.tmp")
    os.replace("out/ckpt.pt.tmp", "out/ckpt.pt")
    optimizer.step()
    with open("out/opened.pt", "wb") as file:
        torch.save(whole, file)
    optimizer.step()
    torch.save(whole, io.BytesIO())  # as Lightning does
    optimizer.step()
    assert [path for path, _, _ in tells(told)] == [
        "out/checkpoint-7", "out/ckpt.pt", "out/opened.pt", ""
    ]  # fmt: skip


def test_a_save_that_failed_is_not_told(told: Path, model: Any, optimizer: Any) -> None:
    with pytest.raises(RuntimeError, match="does not exist"):
        torch.save(model, "no/such/folder.pt")
    optimizer.step()
    assert tells(told) == []


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_distributed_checkpoint_is_told_when_it_has_its_metadata(
    told: Path, model: Any, optimizer: Any
) -> None:
    state = {"model": model.state_dict()}
    dcp.save(state, checkpoint_id="sharded")
    optimizer.step()
    dcp.save(state, storage_writer=dcp.FileSystemWriter("other"))
    optimizer.step()
    assert [path for path, _, _ in tells(told)] == ["sharded", "other"]
    Path("sharded/.metadata").unlink()
    assert script_saves.saves is not None
    script_saves.saves.dcp_begins({"checkpoint_id": "sharded"})  # and it never ends
    optimizer.step()
    assert len(tells(told)) == 2


def test_before_the_first_step_it_is_none(
    told: Path, model: Any, optimizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_page, "steps", StepCounter())
    torch.save(model.state_dict(), "start.pt")
    optimizer.step()
    assert tells(told) == []


def test_it_costs_a_loop_of_saves_one_line_a_second(
    told: Path, model: Any, optimizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script_saves, "TELL_EVERY", 1.0)
    began = time.monotonic()
    for _ in range(20):
        torch.save(model.state_dict(), "ckpt.pt")
        optimizer.step()
    assert len(tells(told)) <= 1 + time.monotonic() - began
