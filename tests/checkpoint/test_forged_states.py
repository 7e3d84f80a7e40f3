"""Trees and tensor files that others wrote: a value or one kind of error, within bounds."""

from __future__ import annotations

import contextlib
import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.checkpoint import safetensors_layout, tree
from holdfast.checkpoint.rank_files import RankFiles, TensorFile
from holdfast.checkpoint.tensors import TensorDecoder
from holdfast.checkpoint.tree import DamagedTreeError

MIB = 1 << 20
STORED = {"w": torch.zeros(8, dtype=torch.uint8), "big": torch.zeros(4 * MIB, dtype=torch.uint8)}


def decoded(node: Any) -> Any:
    return tree.decode(node, TensorDecoder(STORED.__getitem__).decode)


@pytest.mark.parametrize(
    "node",
    [
        {"numpy.array": ["|S0", [10**11], ""]},
        {"numpy.array": ["|S0", [2**20, 2**20], ""]},
        {"numpy.array": ["<U0", [10**11], ""]},
        {"numpy.array": ["<f8", [1] * 200_000, "AAAAAAAAAAA="]},
        {"numpy.array": ["<f8", [-1, -1], "AAAAAAAAAAA="]},
        {"numpy.array": ["<f8", [1e0], "AAAAAAAAAAA="]},
        {"numpy.array": ["<f8", [0, 10**30], ""]},
        {"numpy.array": ["<f8", {"a": 1}, "AAAAAAAAAAA="]},
        {"numpy.array": [["<f8"] * 3, [1], ""]},
        {"numpy.array": ["|O", [1], "AAAAAAAAAAA="]},
        {"numpy.array": ["(1000000000,)<f8", [0], ""]},
        {"numpy.stored": ["|u1", [8] * 100, "w"]},
        [{"numpy.stored": ["|u1", [4 * MIB], "big"]}] * 1000,
        {"tensor": {"name": "w", "dtype": "complex64", "shape": [1] * 200_000}},
        {"tensor": {"name": "w", "dtype": "complex64", "shape": [10**30]}},
        {"tensor": {"name": "w", "dtype": "complex64", "shape": "8"}},
        {"tensor": {"name": ["w"]}},
        {"tensor": {"nam": "w"}},
        {"tensor": "w"},
        {"torch.device": "nowhere"},
        {"torch.dtype": "nn"},
    ],
    ids=lambda node: str(node)[:60],
)
def test_a_forged_leaf_is_one_error_and_takes_no_memory(node: Any) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(DamagedTreeError):
            decoded(node)
        assert tracemalloc.get_traced_memory()[1] < 64 * MIB
    finally:
        tracemalloc.stop()


sides = st.integers(-2, 5) | st.sampled_from([10**6, 10**11, 2**63, 10**30])
shapes = st.lists(sides, max_size=4) | st.just([1] * 100) | st.text(max_size=2)
dtypes = st.sampled_from(["<f8", "|S0", "|S3", "<U0", "<U2", "|u1", "|O", "M8[s]", "?", "x", "V8"])
names = st.sampled_from(["w", "big", "none"])
arrays = st.tuples(dtypes, shapes, st.sampled_from(["", "AAAAAAAAAAA=", "%"]) | names).map(list)
leaves = st.one_of(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    st.sampled_from(["numpy.array", "numpy.scalar", "numpy.stored"]).flatmap(
        lambda kind: arrays.map(lambda body: {kind: body})
    ),
    st.fixed_dictionaries(
        {"name": names},
        optional={
            "dtype": st.sampled_from(["complex64", "float32", "nn", "uint8"]),
            "shape": shapes,
            "on": st.sampled_from(["cpu", "cuda", "x"]),
        },
    ).map(lambda body: {"tensor": body}),
    shapes.map(lambda shape: {"torch.Size": shape}),
    st.text(max_size=5).map(lambda text: {"torch.device": text}),
)
kinds = st.sampled_from(sorted(tree._DECODERS)) | st.text(max_size=3)
nodes = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(kinds, inner, max_size=2),
    max_leaves=15,
)


@settings(deadline=None)
@given(nodes)
def test_any_json_is_a_value_or_one_kind_of_error(node: Any) -> None:
    tracemalloc.start()
    try:
        with contextlib.suppress(DamagedTreeError):
            decoded(node)
        assert tracemalloc.get_traced_memory()[1] < 128 * MIB
    finally:
        tracemalloc.stop()


def tensor_file(path: Path, table: dict[str, Any], data: bytes = b"\0" * 64) -> Path:
    header = json.dumps(table).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)
    return path


@pytest.mark.parametrize(
    "table",
    [
        {f"t{n}": {"dtype": "U8", "shape": [64], "data_offsets": [0, 64]} for n in range(1000)},
        {"t": {"dtype": "U8", "shape": [1] * 200_000, "data_offsets": [0, 1]}},
        {"t": {"dtype": "U8", "shape": [0, 10**30], "data_offsets": [0, 0]}},
        {"t": {"dtype": "F64", "shape": [2**61], "data_offsets": [0, 0]}},
    ],
    ids=["overlapping", "dimensions", "empty", "overflow"],
)
def test_a_forged_header_is_one_error(table: dict[str, Any], tmp_path: Path) -> None:
    path = tensor_file(tmp_path / "rank-0.safetensors", table)
    (tmp_path / "rank-0.json").write_text("{}")
    files = RankFiles(str(tmp_path), 0)
    with pytest.raises(DamagedTreeError):
        files.value([{"tensor": {"name": name}} for name in table])
    assert path.exists()


def test_an_honest_file_of_several_tensors_is_read(tmp_path: Path) -> None:
    table = {
        "a": {"dtype": "U8", "shape": [32], "data_offsets": [0, 32]},
        "b": {"dtype": "F32", "shape": [8], "data_offsets": [32, 64]},
        "c": {"dtype": "F32", "shape": [0, 3], "data_offsets": [64, 64]},
    }
    file = TensorFile(str(tensor_file(tmp_path / "x", table)))
    assert [tuple(file.read(name).shape) for name in "abc"] == [(32,), (8,), (0, 3)]


@pytest.mark.parametrize("name", ["rank-0.json", "rank-0.safetensors"])
def test_a_pipe_as_a_ranks_file_does_not_hang(name: str, tmp_path: Path) -> None:
    (tmp_path / "rank-0.json").write_text("{}")
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    with pytest.raises(OSError, match="not a regular file"):
        RankFiles(str(tmp_path), 0).tensor("w")


def test_dimensions_that_numpy_has_are_kept() -> None:
    assert safetensors_layout.MOST_DIMENSIONS >= 32
    found = decoded({"numpy.array": ["<f8", [1] * 32, "AAAAAAAAAAA="]})
    assert found.ndim == 32
