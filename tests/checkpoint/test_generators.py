"""Random numbers continue exactly where they were; a new rank gets its own, always the same."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from holdfast.checkpoint import generators, tree
from holdfast.checkpoint.tensors import TensorDecoder, TensorEncoder
from holdfast.checkpoint.tree import DamagedTreeError


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    assert np.random is not None  # NumPy loads it when it is asked for
    saved = generators.capture()
    yield
    generators.restore(saved)


def through_the_file(value: Any) -> Any:
    gather = TensorEncoder()
    text = tree.to_json(tree.encode(value, gather.encode))
    assert not gather.tensors  # one small file per rank
    none: dict[str, torch.Tensor] = {}
    return tree.decode(tree.from_json(text), TensorDecoder(none.__getitem__).decode)


def draw() -> list[float]:
    """An odd number of normals: each library keeps the spare one of a pair."""
    return [random.gauss(0, 1), random.random(), np.random.randn(), np.random.rand(),
            *torch.randn(3).tolist(), *torch.rand(1).tolist()]  # fmt: skip


@pytest.mark.parametrize("before", range(4))
def test_every_library_continues_where_it_was(before: int) -> None:
    for _ in range(before):
        draw()
    saved = through_the_file(generators.capture())
    expected = [draw() for _ in range(3)]
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    assert generators.restore(saved) == []
    assert [draw() for _ in range(3)] == expected


def test_a_new_rank_has_numbers_of_its_own_that_are_always_the_same() -> None:
    saved = through_the_file(generators.capture())

    def derived(rank: int) -> list[float]:
        generators.derive(saved, rank)
        return draw()

    draws = [derived(rank) for rank in (4, 5, 4)]
    assert draws[0] == draws[2]
    assert not set(draws[0]) & set(draws[1])


@pytest.mark.parametrize(
    ("make", "draw_one"),
    [
        (lambda: torch.Generator().manual_seed(3), lambda g: torch.rand(3, generator=g).tolist()),
        (lambda: random.Random(3), lambda g: [g.gauss(0, 1), g.random()]),
        (lambda: np.random.default_rng(3), lambda g: g.normal(size=3).tolist()),
    ],
    ids=["torch", "python", "numpy"],
)
def test_generators_of_the_users_own(make: Any, draw_one: Any) -> None:
    one, other = make(), make()
    assert generators.is_generator(one)
    draw_one(one)
    generators.restore_one(other, through_the_file(generators.capture_one(one)))
    assert draw_one(other) == draw_one(one)
    generators.derive_one(one, 7)
    generators.derive_one(other, 7)
    assert draw_one(other) == draw_one(one)


@pytest.mark.parametrize(
    "damage", [{"python": (3, (1, 2), None)}, {"torch": b"short"}, {"numpy": {"key": 1}}]
)
def test_damage_is_reported(damage: dict[str, Any]) -> None:
    with pytest.raises(DamagedTreeError):
        generators.restore(generators.capture() | damage)


def test_a_missing_gpu_is_reported() -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    saved = generators.capture() | {"cuda": {"current": 0, "devices": [b"0" * 16]}}
    assert generators.restore(saved) == [
        "the generators of the GPUs are not restored: this process sees no GPU"
    ]


class Cards:
    """As torch.xpu and others are: two devices, of which the second is the current one."""

    def __init__(self) -> None:
        self.states = [torch.full((4,), number, dtype=torch.uint8) for number in (1, 2)]
        self.available = True

    def is_initialized(self) -> bool:
        return True

    def is_available(self) -> bool:
        return self.available

    def device_count(self) -> int:
        return len(self.states)

    def current_device(self) -> int:
        return 1

    def get_rng_state_all(self) -> list[torch.Tensor]:
        return [state.clone() for state in self.states]

    def get_rng_state(self, device: torch.device) -> torch.Tensor:
        return self.states[device.index].clone()

    def set_rng_state(self, state: torch.Tensor, device: int | torch.device) -> None:
        self.states[device.index if isinstance(device, torch.device) else device] = state


def test_a_draw_on_the_default_device_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loader that begins draws its seed there: with cuda as default not from the CPU's."""
    cards = Cards()
    monkeypatch.setattr(generators, "accelerators", lambda: {"xpu": cards})
    monkeypatch.setattr(torch, "get_default_device", lambda: torch.device("xpu", 1))
    put_back = generators.as_they_are()
    expected = torch.rand(2)
    cards.states[1] = torch.zeros(4, dtype=torch.uint8)
    put_back()
    assert cards.states[1].tolist() == [2] * 4
    assert torch.equal(torch.rand(2), expected)


def test_the_generators_of_other_accelerators_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    cards = Cards()
    monkeypatch.setattr(torch, "npu", cards, raising=False)
    saved = generators.capture()
    cards.states = [torch.zeros(4, dtype=torch.uint8)] * 2
    assert generators.restore(saved) == []
    assert [state.tolist() for state in cards.states] == [[1] * 4, [2] * 4]
    cards.available = False
    assert generators.restore(saved) == [
        "the generators of the npu devices are not restored: this process sees no npu device"
    ]


def test_a_library_without_such_generators_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "npu", object(), raising=False)
    assert "npu" not in generators.capture()
