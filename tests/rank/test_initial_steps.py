"""Steps that only give an optimizer its state: taken by torch itself and by DeepSpeed."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.rank import initial_steps
from holdfast.rank.first_step import steps_counted

torch = pytest.importorskip("torch")
state_dict = pytest.importorskip("torch.distributed.checkpoint.state_dict")


class Zero:
    """As DeepSpeed's optimizers do it."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer

    def initialize_optimizer_states(self) -> None:
        for parameter in self.optimizer.param_groups[0]["params"]:
            parameter.grad = torch.zeros_like(parameter)
        self.optimizer.step()


def made(*, scheduled: bool = False) -> tuple[Any, Any, list[bool]]:
    """A model, its optimizer, and for each step of it whether it is said to be none."""
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    seen: list[bool] = []
    optimizer.register_step_pre_hook(lambda one, *_: seen.append(initial_steps.is_one(one)))
    optimizer.register_step_post_hook(lambda one, *_: seen.append(initial_steps.is_one(one)))
    if scheduled:  # it wraps the optimizer's step
        torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: float(step > 0))
    return model, optimizer, seen


def train(model: Any, optimizer: Any) -> None:
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()


def resume(model: Any, optimizer: Any) -> None:
    model_state, optimizer_state = state_dict.get_state_dict(model, optimizer)
    state_dict.set_state_dict(
        model, optimizer, model_state_dict=model_state, optim_state_dict=optimizer_state
    )


@pytest.mark.parametrize("scheduled", [False, True])
def test_the_step_of_distributed_checkpoint_is_none(*, scheduled: bool) -> None:
    model, optimizer, seen = made(scheduled=scheduled)
    assert not initial_steps.was_given_state(optimizer)
    resume(model, optimizer)
    assert seen == [True, True]
    assert initial_steps.was_given_state(optimizer)
    assert steps_counted(torch, optimizer) == 0, "although its state says 1"
    for count in (2, 3):  # by its own count, of which one is not of the training
        train(model, optimizer)
        assert steps_counted(torch, optimizer) == count
    assert seen == [True, True] + 4 * [False]


def test_the_step_of_deepspeed_is_none() -> None:
    model, optimizer, seen = made()
    Zero(optimizer).initialize_optimizer_states()
    train(model, optimizer)
    assert seen == [True, True, False, False]


def test_a_step_of_training_is_one_whatever_its_learning_rate() -> None:
    model, optimizer, seen = made(scheduled=True)
    train(model, optimizer)
    assert optimizer.param_groups[0]["lr"] == 0
    assert seen == [False, False]
    assert steps_counted(torch, optimizer) == 1
