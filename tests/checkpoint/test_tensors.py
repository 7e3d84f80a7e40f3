"""Tensors and arrays of every kind come back with the same bits, or are refused in words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from holdfast.checkpoint import tree
from holdfast.checkpoint.safetensors_layout import CODES
from holdfast.checkpoint.tensors import TensorDecoder, TensorEncoder
from holdfast.checkpoint.tree import DamagedTreeError
from holdfast.errors import ConfigError


def through(value: Any) -> Any:
    """As the disk would: plain bytes in the file, whatever the type."""
    gather = TensorEncoder()
    node = tree.from_json(tree.to_json(tree.encode(value, gather.encode)))
    kept = {each.name: as_in_the_file(each.tensor) for each in gather.tensors}
    return tree.decode(node, TensorDecoder(kept.__getitem__).decode)


def as_in_the_file(tensor: torch.Tensor) -> torch.Tensor:
    plain = tensor.resolve_conj().resolve_neg().contiguous()
    known = str(plain.dtype).removeprefix("torch.") in CODES
    return plain if known else plain.reshape(-1).view(torch.uint8)


def bits(tensor: torch.Tensor) -> bytes:
    plain = tensor.resolve_conj().resolve_neg().contiguous().reshape(-1)
    return plain.view(torch.uint8).numpy().tobytes() if plain.numel() else b""


KINDS = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32,
    torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool,
    torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.float8_e4m3fnuz, torch.float8_e5m2fnuz,
]  # fmt: skip


@given(st.sampled_from(KINDS), st.lists(st.integers(0, 4), max_size=3), st.randoms())
def test_every_type_and_shape_comes_back_with_the_same_bits(
    dtype: torch.dtype, shape: list[int], dice: Any
) -> None:
    count = int(np.prod(shape)) * dtype.itemsize
    raw = bytearray(dice.randrange(2) if dtype == torch.bool else dice.randrange(256)
                    for _ in range(count))  # fmt: skip
    flat = torch.frombuffer(raw, dtype=dtype) if raw else torch.empty(0, dtype=dtype)
    [tensor] = through([flat.reshape(shape)])
    assert (tensor.dtype, list(tensor.shape), bits(tensor)) == (dtype, shape, bytes(raw))


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(12).reshape(3, 4).t(),
        torch.arange(12)[::3],
        torch.zeros(1).expand(4),
        torch.tensor(3.5),
        torch.empty(0, 3),
        torch.complex(torch.ones(3), torch.ones(3)).conj(),
        torch.imag(torch.complex(torch.ones(3), torch.ones(3)).conj()),
        torch.nn.Parameter(torch.ones(2)),
        torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
    ],
    ids=lambda tensor: f"{tuple(tensor.shape)} {tensor.stride()}",
)
def test_odd_tensors(tensor: torch.Tensor) -> None:
    again = through({"t": tensor})["t"]
    assert torch.equal(again, tensor)
    assert type(again) is torch.Tensor


def test_tied_weights_are_written_once_and_come_back_as_one() -> None:
    weight = torch.randn(3, 2)
    gather = TensorEncoder()
    tree.encode({"a": weight, "b": weight.detach(), "part": weight[:1]}, gather.encode)
    assert [each.name for each in gather.tensors] == ["a", "part"]
    again = through({"a": weight, "b": weight.detach(), "part": weight[:1]})
    assert again["a"] is again["b"]
    assert torch.equal(again["part"], weight[:1])


def test_names_that_would_collide_are_told_apart() -> None:
    value = {"a.b": torch.tensor(1), "a": {"b": torch.tensor(2)}, 0: torch.tensor(3),
             "0": torch.tensor(4), "__metadata__": torch.tensor(5), chr(0xDC80): torch.tensor(6),
             chr(0xDC81): torch.tensor(7)}  # fmt: skip
    assert through(value) == value


def optimizer_states() -> list[Any]:
    parameters = [torch.nn.Parameter(torch.randn(3)) for _ in range(2)]
    parameters[0].grad = torch.randn(3)
    optimizer = torch.optim.Adam([{"params": parameters[:1]}, {"params": parameters[1:]}])
    optimizer.step()
    return [optimizer.state_dict()]


@pytest.mark.parametrize("state", optimizer_states())
def test_an_optimizer_with_numbers_as_keys(state: dict[str, Any]) -> None:
    again = through(state)
    assert again["param_groups"] == state["param_groups"]
    assert list(again["state"]) == [0]
    assert torch.equal(again["state"][0]["exp_avg"], state["state"][0]["exp_avg"])


@pytest.mark.parametrize(
    "value", [torch.bfloat16, torch.device("cuda:1"), torch.Size([2, 3]), torch.Size([])], ids=str
)
def test_torchs_own_types(value: Any) -> None:
    again = through([value])[0]
    assert (again, type(again)) == (value, type(value))


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6).reshape(2, 3)[:, ::-1], np.array(2.5), np.zeros((0, 3), "f4"),
        np.array(["a", "bc"]), np.array([b"x"]), np.arange(3, dtype=">i4"), np.array([""]),
        np.array(["2020-01-01"], "M8[D]"), np.asfortranarray(np.eye(3)), np.arange(20_000),
        np.frombuffer(b"read-only"[:8], "i8"),
    ],
    ids=lambda array: f"{array.dtype.str}{array.shape}",
)  # fmt: skip
def test_arrays(array: Any) -> None:
    again = through([array])[0]
    assert (again.dtype, again.shape) == (array.dtype, array.shape)
    assert np.array_equal(again, array)
    assert again.flags.writeable


@pytest.mark.parametrize("scalar", [np.float32(0.1), np.int64(-3), np.bool_(True), np.str_("é")])
def test_scalars_of_numpy(scalar: Any) -> None:
    again = through([scalar])[0]
    assert (type(again), again) == (type(scalar), scalar)


def refused() -> list[tuple[Any, str]]:
    quantised = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8)
    return [
        (torch.empty(2, device="meta"), "meta device"),
        (torch.eye(2).to_sparse(), "sparse_coo"),
        (quantised, "quantised"),
        (torch.nn.LazyLinear(2).weight, "lazy parameter"),
        (np.array([object()]), "only arrays of plain values"),
        (np.zeros(2, [("a", "i4")]), "only arrays of plain values"),
        (np.ma.MaskedArray([1, 2], [False, True]), "only arrays of plain values"),
        (torch.eye(2).as_subclass(type("Odd", (torch.Tensor,), {})), "Odd: only plain tensors"),
    ]


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
def test_what_cannot_be_written_is_refused_in_words() -> None:
    for value, sentence in refused():
        with pytest.raises(ConfigError, match=sentence) as said:
            tree.encode({"a": [value]}, TensorEncoder().encode)
        assert said.value.sentence.startswith('state["a"][0] is a')


@pytest.mark.parametrize(
    "node",
    [
        {"tensor": {"name": "absent"}}, {"tensor": {}}, {"tensor": {"name": "t", "x": 1}},
        {"tensor": {"name": "t", "dtype": "save", "shape": [1]}},
        {"tensor": {"name": "t", "dtype": "complex128", "shape": [5]}},
        {"tensor": {"name": ["t"]}}, {"torch.dtype": "load"}, {"torch.device": "nowhere"},
        {"torch.Size": ["a"]}, {"numpy.array": ["<i8", [3], "AAAA"]},
        {"numpy.array": ["O", [1], "AAAAAAAAAAA="]}, {"numpy.scalar": ["<i8"]},
        {"numpy.stored": ["<i8", [1], "absent"]}, {"torch.dtype": [1]},
    ],
    ids=str,
)  # fmt: skip
def test_damaged_leaves_are_one_kind_of_error(node: Any) -> None:
    kept = {"t": torch.zeros(16, dtype=torch.uint8)}
    with pytest.raises(DamagedTreeError):
        tree.decode(node, TensorDecoder(kept.__getitem__).decode)
