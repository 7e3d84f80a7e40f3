"""holdfast -> Hugging Face or DCP -> holdfast, torch.save -> holdfast: equal tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, load_model
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.checkpoint.state_dict_loader import load as dcp_load

import holdfast
from holdfast.checkpoint.checkpoint import Checkpoint
from holdfast.checkpoint.exchange import to_dcp, to_huggingface
from holdfast.checkpoint.exchange.bring_in import bring_in
from holdfast.checkpoint.exchange.to_huggingface import INDEX, SHARD_SIZE
from holdfast.checkpoint.state import State
from holdfast.errors import ConfigError, ResumeRefused
from tests.checkpoint.reading.small_checkpoint import equal, optimizer_of, save, small_model
from tests.checkpoint.reading.two_ranks import TwoRanks

pytestmark = [
    pytest.mark.xdist_group("two-ranks"),
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled"),
]
KINDS = pytest.mark.parametrize("kind", ["plain", "sharded"])


def resumed(folder: Path, model: nn.Module, **more: Any) -> State:
    optimizer = optimizer_of(model)
    state = State(model=model, optimizer=optimizer, **more)
    with Checkpoint(folder, state, every="2h", config={"lr": 3}) as ckpt:
        ckpt.resume()
    return state


def tied_model() -> nn.Module:
    """As in tests/targets/read_elsewhere.py."""
    model = nn.Module()
    model.embed = nn.Embedding(11, 6)
    model.inner = nn.Linear(6, 6)
    model.seen = nn.Buffer(torch.zeros(3))
    model.head = nn.Linear(6, 11, bias=False)
    model.head.weight = model.embed.weight
    return model


def same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> bool:
    return found.keys() == expected.keys() and all(
        torch.equal(found[name], tensor) for name, tensor in expected.items()
    )


# --- Hugging Face --------------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize("shard_size", [SHARD_SIZE, 200])
def test_through_hugging_face(
    two_ranks: TwoRanks, kind: str, shard_size: int, tmp_path: Path
) -> None:
    expected = two_ranks.model(kind)
    with holdfast.load(two_ranks.folder(kind)) as saved:
        made = to_huggingface.export(saved, str(tmp_path / "hf"), shard_size=shard_size)
    files = [name for name in made.files if name != INDEX]
    assert (INDEX in made.files) == (len(files) > 1) == (shard_size == 200)
    found: dict[str, torch.Tensor] = {}
    for name in files:
        found |= load_file(tmp_path / "hf" / name)
    once = {name: tensor for name, tensor in expected.items() if name != "head.weight"}
    assert same(found, once), "the tied weight is written once, under its first name"
    bring_in(str(tmp_path / "hf"), str(tmp_path / "back"))
    model = tied_model()
    state = resumed(tmp_path / "back", model)
    assert same(dict(model.state_dict()), expected)
    assert state.step == 0


def test_safetensors_own_loader_of_models_takes_the_tied_weight(
    two_ranks: TwoRanks, tmp_path: Path
) -> None:
    with holdfast.load(two_ranks.sharded) as saved:
        to_huggingface.export(saved, str(tmp_path / "hf"), shard_size=SHARD_SIZE)
    model = tied_model()
    load_model(model, tmp_path / "hf" / "model.safetensors")
    assert same(dict(model.state_dict()), two_ranks.model("sharded"))


def test_transformers_reads_it(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        n_layer=1, n_head=2, n_embd=8, vocab_size=16, n_positions=8, bos_token_id=0, eos_token_id=0
    )
    model = transformers.GPT2LMHeadModel(config)
    state = State(model=model)
    with Checkpoint(tmp_path / "ckpts", state, every="2h") as ckpt:
        ckpt.resume()
        assert ckpt.save()
    with holdfast.load(tmp_path / "ckpts") as saved:
        to_huggingface.export(saved, str(tmp_path / "hf"), shard_size=3000)
    config.save_pretrained(tmp_path / "hf")
    again = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "hf")
    assert same(dict(again.state_dict()), dict(model.state_dict()))


def test_nothing_is_overwritten_and_nothing_half_is_left(tmp_path: Path) -> None:
    model = small_model()
    model.register_buffer("phase", torch.zeros(2, dtype=torch.complex64))
    save(tmp_path / "ckpts", model=model)
    with holdfast.load(tmp_path / "ckpts") as saved:
        with pytest.raises(ConfigError, match="safetensors has no type for"):
            to_huggingface.export(saved, str(tmp_path / "hf"), shard_size=SHARD_SIZE)
        (tmp_path / "there").mkdir()
        with pytest.raises(ConfigError, match="exists already"):
            to_dcp.export(saved, str(tmp_path / "there"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ckpts", "there"]


# --- DCP -----------------------------------------------------------------------------------------


@KINDS
def test_through_dcp(two_ranks: TwoRanks, kind: str, tmp_path: Path) -> None:
    expected = two_ranks.model(kind)
    with holdfast.load(two_ranks.folder(kind)) as saved:
        to_dcp.export(saved, str(tmp_path / "dcp"))
    model = tied_model()
    optimizer = optimizer_of(model)
    state: dict[str, Any] = {"model": get_model_state_dict(model),
             "optimizer": get_optimizer_state_dict(model, optimizer)}  # fmt: skip
    dcp_load(state, checkpoint_id=tmp_path / "dcp", no_dist=True)
    assert same(dict(model.state_dict()), expected), "as DCP itself reads it"
    set_optimizer_state_dict(model, optimizer, state["optimizer"])
    momenta = {
        name: tensor for name, tensor in two_ranks.optimizer(kind).items() if "exp_avg" in name
    }
    names = [name for name, _ in model.named_parameters()]
    numbered = optimizer.state_dict()["state"]
    assert all(
        torch.equal(numbered[names.index(name.rpartition("/")[0])][name.rpartition("/")[2]], tensor)
        for name, tensor in momenta.items()
    )
    made = bring_in(str(tmp_path / "dcp"), str(tmp_path / "back"))
    assert (made.step, made.format) == (7, "DCP")
    again = tied_model()
    back = resumed(tmp_path / "back", again)
    assert same(dict(again.state_dict()), expected)
    assert (back.step, back.epoch) == (7, 2)
    assert back.optimizer is not None
    found = back.optimizer.state_dict()["state"]
    assert all(
        torch.equal(found[number][key], value)
        for number, values in numbered.items()
        for key, value in values.items()
    )


# --- torch.save ----------------------------------------------------------------------------------


def trained() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = small_model(seed=5)
    optimizer = optimizer_of(model)
    model(torch.randn(5, 4)).sum().backward()
    optimizer.step()
    return model, optimizer


@pytest.mark.parametrize("layout", ["bare", "ddp", "tutorial", "lightning"])
def test_from_torch_save(layout: str, tmp_path: Path) -> None:
    model, optimizer = trained()
    state = dict(model.state_dict())
    content: Any = {
        "bare": state,
        "ddp": {f"module._orig_mod.{name}": tensor for name, tensor in state.items()},
        "tutorial": {"model_state_dict": state, "optimizer_state_dict": optimizer.state_dict(),
                     "epoch": 3, "loss": 0.5},
        "lightning": {"state_dict": state, "optimizer_states": [optimizer.state_dict()],
                      "global_step": 12, "epoch": 3},
    }[layout]  # fmt: skip
    torch.save(content, tmp_path / "model.pt")
    made = bring_in(str(tmp_path / "model.pt"), str(tmp_path / "ckpts"))
    other = small_model(seed=6)
    back = resumed(tmp_path / "ckpts", other, best=1)
    assert equal(model, other)
    assert back.step == made.step == (12 if layout == "lightning" else 0)
    assert back.optimizer is not None
    if layout in ("tutorial", "lightning"):
        found = back.optimizer.state_dict()["state"]
        assert torch.equal(found[0]["exp_avg"], optimizer.state_dict()["state"][0]["exp_avg"])
        assert back.epoch == 3
    else:
        assert "no optimizer in it: it starts fresh at the resume" in made.notes


def test_what_was_imported_goes_on_as_an_ordinary_checkpoint(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model, _ = trained()
    torch.save(model.state_dict(), tmp_path / "model.pt")
    bring_in(str(tmp_path / "model.pt"), str(tmp_path / "ckpts"), step=40)
    save(tmp_path / "ckpts", steps=2)
    said = capfd.readouterr().err
    assert "imported from torch.save model.pt" in said
    assert "data position and random numbers are not in it" in said
    with holdfast.load(tmp_path / "ckpts") as saved:
        assert (saved.step, saved.manifest.imported) == (42, "")


def test_a_model_of_another_shape_is_refused(tmp_path: Path) -> None:
    torch.save(small_model().state_dict(), tmp_path / "model.pt")
    bring_in(str(tmp_path / "model.pt"), str(tmp_path / "ckpts"))
    other = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 5))
    with pytest.raises(ResumeRefused, match=r"model\.2\.weight: \[2, 3\] then, \[5, 3\] now"):
        resumed(tmp_path / "ckpts", other)


def test_a_folder_with_checkpoints_is_not_imported_into(tmp_path: Path) -> None:
    save(tmp_path / "ckpts")
    torch.save(small_model().state_dict(), tmp_path / "model.pt")
    with pytest.raises(ConfigError, match="has checkpoints already"):
        bring_in(str(tmp_path / "model.pt"), str(tmp_path / "ckpts"))


def test_another_dtype_is_converted_at_the_resume(tmp_path: Path) -> None:
    half = small_model(seed=3).to(torch.bfloat16)
    torch.save(half.state_dict(), tmp_path / "model.pt")
    bring_in(str(tmp_path / "model.pt"), str(tmp_path / "ckpts"))
    other = small_model(seed=4)
    resumed(tmp_path / "ckpts", other)
    assert torch.equal(other.state_dict()["0.weight"], half.state_dict()["0.weight"].float())
