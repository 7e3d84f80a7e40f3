"""An accepted change of the script's settings is in force after a resume, by any scheduler."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim import SGD, AdamW, Optimizer
from torch.optim import lr_scheduler as ls

from holdfast.checkpoint import hyperparameters
from holdfast.checkpoint.checkpoint import Checkpoint
from holdfast.checkpoint.state import State

pytestmark = pytest.mark.filterwarnings("ignore:Detected call of:UserWarning",
                                        "ignore:The epoch parameter:UserWarning")  # fmt: skip
Make = Callable[[Optimizer], Any]


def warmed_up(optimizer: Optimizer, *, floor: float = 1e-3) -> ls.LRScheduler:
    parts = [ls.LinearLR(optimizer, 0.1, total_iters=4),
             ls.CosineAnnealingLR(optimizer, 20, eta_min=floor)]  # fmt: skip
    return ls.SequentialLR(optimizer, parts, milestones=[4])


def chained(optimizer: Optimizer) -> ls.LRScheduler:
    return ls.ChainedScheduler([ls.ExponentialLR(optimizer, 0.9), ls.StepLR(optimizer, 3)])


SCHEDULERS: dict[str, Make] = {
    "none": lambda _: None,
    "lambda": lambda o: ls.LambdaLR(o, lambda step: min(1.0, (step + 1) / 8)),
    "multiplicative": lambda o: ls.MultiplicativeLR(o, lambda _: 0.9),
    "step": lambda o: ls.StepLR(o, 3, gamma=0.5),
    "multistep": lambda o: ls.MultiStepLR(o, [2, 5, 9]),
    "constant": lambda o: ls.ConstantLR(o, 0.5, total_iters=8),
    "linear": lambda o: ls.LinearLR(o, 0.2, total_iters=9),
    "exponential": lambda o: ls.ExponentialLR(o, 0.95),
    "polynomial": lambda o: ls.PolynomialLR(o, 30, power=2.0),
    "cosine": lambda o: ls.CosineAnnealingLR(o, 30, eta_min=0.01),
    "restarts": lambda o: ls.CosineAnnealingWarmRestarts(o, 5, eta_min=0.01),
    "warm-up": warmed_up,
    "chained": chained,
}


def run(make: Make, steps: int, *, lr: Any = 0.1, **more: Any) -> tuple[list[float], Any, Any]:
    """The rate of each step, then the optimizer and the scheduler."""
    torch.manual_seed(0)
    layers = torch.nn.Linear(3, 2)
    optimizer = SGD([{"params": [layers.weight]}, {"params": [layers.bias], "lr": lr / 10}], lr=lr,
                    momentum=0.9, **more)  # fmt: skip
    scheduler = make(optimizer)
    return continued(optimizer, scheduler, steps), optimizer, scheduler


def continued(optimizer: Any, scheduler: Any, steps: int) -> list[float]:
    rates = []
    for _ in range(steps):
        rates += [float(group["lr"]) for group in optimizer.param_groups]
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
    return rates


def resumed(
    old: Make, new: Make, *, at: int, lr: Any, **more: Any
) -> tuple[list[float], list[str]]:
    """Trained with the old settings, continued with the new ones."""

    def things(optimizer: Any, scheduler: Any) -> dict[str, Any]:
        return {"optimizer": optimizer, **({"scheduler": scheduler} if scheduler else {})}

    _, optimizer, scheduler = run(old, 0)
    saved = copy.deepcopy(hyperparameters.settings_of(things(optimizer, scheduler)))
    continued(optimizer, scheduler, at)
    _, again, other = run(new, 0, lr=lr, **more)
    now = hyperparameters.settings_of(things(again, other))
    again.load_state_dict(optimizer.state_dict())
    if other is not None:
        other.load_state_dict(copy.deepcopy(scheduler.state_dict()))
    phrases = hyperparameters.apply_changes(things(again, other), saved, now)
    return continued(again, other, 12), phrases


@pytest.mark.parametrize("at", [1, 3, 7])
@pytest.mark.parametrize("name", SCHEDULERS)
def test_another_rate_goes_on_as_if_it_had_always_been_so(name: str, at: int) -> None:
    make = SCHEDULERS[name]
    whole, _, _ = run(make, at + 12, lr=0.4)
    rates, phrases = resumed(make, make, at=at, lr=0.4)
    assert rates == pytest.approx(whole[2 * at :])
    assert phrases == ["optimizer lr 0.1 -> 0.4", "optimizer lr 0.01 -> 0.04"]


@pytest.mark.parametrize(
    ("old", "new", "phrases"),
    [
        (SCHEDULERS["cosine"], lambda o: ls.CosineAnnealingLR(o, 60, eta_min=0.02),
         ["scheduler T_max 30 -> 60", "scheduler eta_min 0.01 -> 0.02"]),
        (SCHEDULERS["step"], lambda o: ls.StepLR(o, 3, gamma=0.25),
         ["scheduler gamma 0.5 -> 0.25"]),
        (warmed_up, lambda o: warmed_up(o, floor=0.01), ["scheduler eta_min 0.001 -> 0.01"]),
    ],
)  # fmt: skip
def test_another_schedule(old: Make, new: Make, phrases: list[str]) -> None:
    whole, _, _ = run(new, 19)
    rates, said = resumed(old, new, at=7, lr=0.1)
    assert rates == pytest.approx(whole[14:])
    assert said == phrases


def one_cycle(rate: float) -> Make:
    return lambda o: ls.OneCycleLR(o, max_lr=[rate, rate / 10], total_steps=40)


def test_the_highest_rate_of_a_cycle() -> None:
    whole, _, _ = run(one_cycle(0.5), 19)
    rates, phrases = resumed(one_cycle(0.1), one_cycle(0.5), at=7, lr=0.1)
    assert rates == pytest.approx(whole[14:])
    assert "optimizer max_lr 0.1 -> 0.5" in phrases


@pytest.mark.parametrize("name", SCHEDULERS)
def test_without_a_change_nothing_is_touched(name: str) -> None:
    make = SCHEDULERS[name]
    rates, phrases = resumed(make, make, at=5, lr=0.1)
    assert rates == run(make, 17)[0][10:]
    assert phrases == []


def test_other_settings_of_the_optimizer() -> None:
    rates, phrases = resumed(SCHEDULERS["none"], SCHEDULERS["none"], at=2, lr=0.1, weight_decay=0.5)
    assert rates == [0.1, 0.01] * 12
    assert phrases == ["optimizer weight_decay 0 -> 0.5"]


def test_a_rate_that_a_plateau_has_lowered_keeps_its_part() -> None:
    optimizer = SGD(torch.nn.Linear(2, 2).parameters(), lr=0.4)
    now = hyperparameters.settings_of({"optimizer": optimizer})
    saved = {"optimizer": [now["optimizer"][0] | {"lr": 0.1, "momentum": 0.9}]}
    optimizer.param_groups[0]["lr"] = 0.025
    phrases = hyperparameters.apply_changes({"optimizer": optimizer}, saved, now)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1)
    assert phrases == ["optimizer lr 0.1 -> 0.4",
                       "optimizer momentum is still 0.9, its state depends on it"]  # fmt: skip


@pytest.mark.parametrize("lr", [0.2, torch.tensor(0.2)])
def test_accepted_through_a_checkpoint(
    lr: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def start(lr: Any, steps: int, **accept: Any) -> tuple[float, AdamW]:
        model = torch.nn.Linear(3, 2)
        optimizer = AdamW(model.parameters(), lr=lr, foreach=False)
        scheduler = ls.LambdaLR(optimizer, lambda step: 1 / (1 + step))
        state = State(model=model, optimizer=optimizer, scheduler=scheduler)
        with Checkpoint(tmp_path, state, config={"lr": float(lr)}) as ckpt:
            ckpt.resume(**accept)
            for _ in range(steps):
                model(torch.ones(1, 3)).sum().backward()
                optimizer.step()
                scheduler.step()
                ckpt.step()
            assert ckpt.save()
        return float(optimizer.param_groups[0]["lr"]), optimizer

    first = torch.tensor(0.1) if isinstance(lr, torch.Tensor) else 0.1
    assert start(first, 3)[0] == pytest.approx(0.1 / 4)
    rate, optimizer = start(lr, 1, accept={"config"})
    assert rate == pytest.approx(0.2 / 5)
    assert isinstance(optimizer.param_groups[0]["lr"], type(lr))
    assert "now in force as the script sets it: optimizer lr 0.1 -> 0.2\n" in capfd.readouterr().err
    assert start(lr, 1)[0] == pytest.approx(0.2 / 6)


def test_without_a_config_what_is_not_in_force_is_said(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def start(lr: float, **accept: Any) -> tuple[float, str]:
        model = torch.nn.Linear(3, 2)
        optimizer = AdamW(model.parameters(), lr=lr)
        with Checkpoint(tmp_path, State(model=model, optimizer=optimizer)) as ckpt:
            ckpt.resume(**accept)
            model(torch.ones(1, 3)).sum().backward()
            optimizer.step()
            ckpt.step()
            assert ckpt.save()
        return optimizer.param_groups[0]["lr"], capfd.readouterr().err

    start(0.005)
    assert "in force" not in start(0.005)[1]
    rate, told = start(0.5)
    assert rate == 0.005
    assert "the script sets optimizer lr 0.5, the checkpoint's 0.005 is in force" in told
    assert "HOLDFAST_ACCEPT=config" in told
    rate, told = start(0.5, accept={"config"})
    assert rate == pytest.approx(0.5)
    assert "now in force as the script sets it: optimizer lr 0.005 -> 0.5" in told
