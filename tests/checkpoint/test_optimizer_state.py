"""Optimizers: state keeps its types, and goes to the parameters it belongs to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from holdfast.checkpoint import optimizer_state
from holdfast.checkpoint.state import State
from holdfast.errors import ConfigError
from tests.checkpoint.test_state import write


def test_state_wider_than_its_parameter_stays_so(tmp_path: Path) -> None:
    def make() -> tuple[nn.Parameter, torch.optim.Optimizer]:
        parameter = nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
        optimizer = torch.optim.SGD([parameter], lr=0.1, momentum=0.9)
        optimizer.state[parameter]["momentum_buffer"] = torch.tensor([0.1, 1e-3, 1e9])
        return parameter, optimizer

    _, optimizer = make()
    folder = write(State(optimizer=optimizer).capture(0), 0, tmp_path)
    parameter, other = make()
    State(optimizer=other).restore(folder, 0, 1)
    assert (
        other.state[parameter]["momentum_buffer"].tolist()
        == torch.tensor([0.1, 1e-3, 1e9]).tolist()
    )


def bfloat16_with(state: dict[str, Any]) -> tuple[nn.Parameter, torch.optim.Optimizer]:
    parameter = nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    optimizer.state[parameter] = state
    return parameter, optimizer


def test_state_in_lists_and_dicts_keeps_its_types(tmp_path: Path) -> None:
    kept = {
        "preconditioners": [torch.tensor([0.1, 1e-3]), torch.tensor([1 << 40, 3])],
        "blocks": {"left": (torch.tensor([True]), {"deep": torch.tensor(0.3).double()})},
        "shape": [4, 2.5, None],
        "momentum": torch.ones(3, dtype=torch.bfloat16),
    }
    texts = {"kind": "soap", "name": b"q"}
    _, optimizer = bfloat16_with(kept | texts)
    folder = write(State(optimizer=optimizer).capture(0), 0, tmp_path)
    parameter, other = bfloat16_with({})
    State(optimizer=other).restore(folder, 0, 1)
    back = dict(other.state[parameter])
    assert {name: back.pop(name) for name in texts} == texts
    torch.testing.assert_close(back, kept, rtol=0, atol=0)
    assert other.state[parameter]["preconditioners"][0].dtype == torch.float32


def test_what_an_optimizer_makes_of_its_state_stays(tmp_path: Path) -> None:
    class Wraps(torch.optim.SGD):
        """Keeps its factors in an object of its own."""

        def state_dict(self) -> dict[str, Any]:
            found = super().state_dict()
            found["state"] = {0: {"factors": [self.factors]}}
            return found

        def load_state_dict(self, saved: dict[str, Any]) -> None:
            super().load_state_dict(saved | {"state": {}})
            self.factors = saved["state"][0]["factors"][0]

    parameter = nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
    one, other = Wraps([parameter], lr=0.1), Wraps([parameter], lr=0.1)
    one.factors, other.factors = torch.tensor([0.1, 2.0]), torch.zeros(2)
    folder = write(State(optimizer=one).capture(0), 0, tmp_path)
    State(optimizer=other).restore(folder, 0, 1)
    assert torch.equal(other.factors, one.factors)
    assert not other.state


# --- names ---------------------------------------------------------------------------------------


def trained(order: Sequence[str], steps: int = 2) -> tuple[nn.Module, State]:
    """Layers of one shape, given to the optimizer in that order; each has another gradient."""
    torch.manual_seed(0)
    weights = {name: nn.Parameter(torch.rand(2, 2)) for name in "abc"}
    model = nn.ParameterDict(weights)
    optimizer = torch.optim.Adam([weights[name] for name in order], lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        for factor, name in enumerate("abc", start=1):
            (factor * weights[name].pow(2).sum()).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return model, State(model=model, optimizer=optimizer)


def momenta(model: Any, state: State) -> dict[str, torch.Tensor]:
    assert state.optimizer is not None
    return {name: state.optimizer.state[model[name]]["exp_avg"] for name in "abc"}


@pytest.mark.parametrize("order", ["abc", "cab", "bac"])
def test_momenta_go_to_the_parameters_of_their_name(order: str, tmp_path: Path) -> None:
    model, state = trained("abc")
    folder = write(state.capture(0), 0, tmp_path)
    other_model, other = trained(order, steps=0)
    assert other.structure() == state.structure()
    other.restore(folder, 0, 1)
    expected = momenta(model, state)
    assert all(torch.equal(t, expected[name]) for name, t in momenta(other_model, other).items())


def test_a_checkpoint_without_names_loads_by_number(tmp_path: Path) -> None:
    model, state = trained("abc")
    folder = write(state.capture(0), 0, tmp_path)
    tree = json.loads((tmp_path / "rank-0.json").read_text())
    del tree["optimizer_groups"], tree["own_structure"]
    (tmp_path / "rank-0.json").write_text(json.dumps(tree))
    other_model, other = trained("abc", steps=0)
    other.restore(folder, 0, 1)
    expected = momenta(model, state)
    assert all(torch.equal(t, expected[name]) for name, t in momenta(other_model, other).items())
    assert state.first_structure()["optimizer.group 0.1"] == "float32 [2, 2]"


def test_other_parameters_are_another_structure(tmp_path: Path) -> None:
    _, state = trained("ab")
    _, other = trained("ac", steps=0)
    assert state.structure() != other.structure()
    folder = write(state.capture(0), 0, tmp_path)
    with pytest.raises(ConfigError, match="other parameters than when it was saved"):
        other.restore(folder, 0, 1)


def test_parameters_of_no_model_go_by_their_number() -> None:
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD([model.weight, nn.Parameter(torch.zeros(2))], lr=1)
    assert optimizer_state.groups(optimizer, {model.weight: "model.weight"}) == [
        ["model.weight", "1"]
    ]


def test_names_that_torch_keeps_follow_the_order() -> None:
    saved = {"state": {}, "param_groups": [{"params": [0, 1], "param_names": ["a", "b"], "lr": 1}]}
    assert optimizer_state.in_order(saved, [["m.a", "m.b"]], [["m.b", "m.a"]]) == {
        "state": {},
        "param_groups": [{"params": [1, 0], "param_names": ["b", "a"], "lr": 1}],
    }


def test_a_second_model_gives_names_to_its_optimizer() -> None:
    critic = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(critic.parameters(), lr=1)
    state = State(model=nn.Linear(1, 1), critic=critic, critic_optimizer=optimizer)
    assert "critic_optimizer.group 0.critic.bias" in state.structure()
