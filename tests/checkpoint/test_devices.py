"""State that is elsewhere than on the CPU or the current GPU; what cannot be done is refused.

No accelerator is needed: tensors that say they are on one hold their values on the CPU.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_map

from holdfast.checkpoint import copying, object_state, optimizer_state, tensors
from holdfast.checkpoint.state import State
from holdfast.checkpoint.tensors import NamedTensor
from holdfast.errors import ConfigError


class OnCard(torch.Tensor):
    """On a device of a kind that torch itself has no kernels for here."""

    held: torch.Tensor
    blocking: list[bool]

    @staticmethod
    def __new__(cls, held: torch.Tensor, device: str) -> OnCard:
        made: Any = torch.Tensor._make_wrapper_subclass(
            cls, held.shape, dtype=held.dtype, device=torch.device(device)
        )
        made.held, made.blocking = held, []
        return made  # type: ignore[no-any-return]

    @classmethod
    def __torch_dispatch__(cls, func: Any, _: Any, args: Any = (), __: Any = None) -> Any:  # type: ignore[override]
        if func is torch.ops.aten.copy_.default:
            source = args[1]
            source.blocking.append(not (args[2] if len(args) > 2 else False))
        return func(*tree_map(lambda x: x.held if isinstance(x, OnCard) else x, args))


@pytest.mark.parametrize("device", ["xpu:0", "hpu:1", "npu:0", "mps:0"])
def test_other_accelerators_are_copied_plainly_and_waited_for(device: str) -> None:
    try:
        torch.device(device)
    except RuntimeError:
        device = "privateuseone:0"  # the vendor's package gives it its name
    card = OnCard(torch.arange(6.0).reshape(2, 3), device)
    plain = torch.arange(4.0)
    views: list[torch.Tensor | None] = [torch.zeros(2, 3), torch.zeros(4)]
    copying.copy(views, [NamedTensor("a", card), NamedTensor("b", plain)], threads=2)
    assert views[0] is not None
    assert views[0].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert views[1] is not None
    assert views[1].tolist() == [0, 1, 2, 3]
    assert card.blocking == [True]


def test_extras_come_back_to_where_the_script_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[tuple[Any, Any]] = []
    to = torch.Tensor.to

    def noted(self: torch.Tensor, device: Any) -> torch.Tensor:
        moved.append((self.tolist(), str(device)))
        return to(self, "cpu")

    monkeypatch.setattr(torch.Tensor, "to", noted)
    first, second = (OnCard(torch.zeros(1), f"cuda:{number}") for number in range(2))
    state = State(mean=torch.zeros(1), table={"a": torch.zeros(1), "b": [torch.zeros(1)], "n": 1})
    state.extras = {"mean": second, "table": {"a": first, "b": [second], "n": 1}}
    state.give("mean", torch.ones(1))
    state.give("table", {"a": torch.full((1,), 2.0), "b": [torch.full((1,), 3.0)], "n": 5})
    assert moved == [([1.0], "cuda:1"), ([2.0], "cuda:0"), ([3.0], "cuda:1")]
    assert state.extras["table"]["n"] == 5


def test_what_the_script_has_no_longer_stays_where_it_is() -> None:
    value = {"a": torch.ones(1), "b": (torch.ones(1), 2), "c": [1, 2]}
    for now in (None, {}, {"a": 1, "b": (1,), "c": [torch.ones(1)]}):
        assert object_state.moved_like(value, now) == value
    on_meta = torch.empty(1, device="meta")
    assert object_state.moved_like(torch.ones(1), on_meta).tolist() == [1]


@pytest.mark.parametrize(
    ("devices", "elsewhere"),
    [
        (["cpu", "cpu"], False),
        (["cuda:0", "cuda:0"], False),
        (["cpu", "cuda:0"], False),
        (["cuda:0", "cuda:1"], True),
        (["cuda:1", "cuda:1"], True),
        (["xpu:0"], True),
    ],
)
def test_the_state_of_an_optimizer_never_gathers_on_one_gpu(
    devices: list[str], elsewhere: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimizer_state, "device_for", lambda _: torch.device("cuda", 0))

    made = [torch.zeros(1) if one == "cpu" else OnCard(torch.zeros(1), one) for one in devices]
    optimizer = SimpleNamespace(param_groups=[{"params": made}])
    assert optimizer_state.is_elsewhere(optimizer) is elsewhere
    assert not optimizer_state.is_elsewhere(torch.nn.Linear(1, 1))


def test_the_meta_device_is_refused_both_ways() -> None:
    with torch.device("meta"):
        model = torch.nn.Linear(3, 2)
    state = State(model=model)
    with pytest.raises(ConfigError, match="is a tensor on the meta device: it has no values"):
        state.capture(0)
    with pytest.raises(ConfigError, match="weight is on the meta device: it has no memory to load"):
        state.give("model", {"weight": torch.ones(2, 3), "bias": torch.ones(2)})


def test_a_device_that_is_not_here_means_the_cpu() -> None:
    for kind in ("npu", "meta", "no such device", "cuda:999"):
        assert tensors.device_for(kind) == torch.device("cpu")
