"""Any state comes back exactly, or is refused with its place; a damaged tree is one clear error."""

from __future__ import annotations

import contextlib
import enum
import math
import struct
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.checkpoint import tree
from holdfast.checkpoint.tree import DamagedTreeError
from holdfast.errors import ConfigError
from tests.checkpoint.exactly import same


def no_leaf(_value: object, _path: tree.Path) -> None:
    return None


def no_kind(kind: str, _body: object) -> object:
    raise LookupError(f"unknown kind {kind!r}")


def through(value: Any) -> Any:
    text = tree.to_json(tree.encode(value, no_leaf))
    return tree.decode(tree.from_json(text), no_kind)


any_text = st.text() | st.text(st.characters())  # lone surrogates, too
scalars = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.complex_numbers() | any_text
    | st.binary() | st.binary().map(bytearray)
)  # fmt: skip
keys = st.recursive(
    st.booleans() | st.integers() | st.floats() | any_text | st.binary() | st.none(),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3),
    max_leaves=3,
)


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    mappings = st.dictionaries(keys, inner, max_size=4)
    return st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(any_text, inner, max_size=4),
        mappings,
        mappings.map(OrderedDict),
        mappings.map(lambda value: defaultdict(list, value)),
        mappings.map(lambda value: defaultdict(None, value)),
        st.dictionaries(keys, st.integers(), max_size=4).map(Counter),
        st.sets(keys, max_size=3),
        st.tuples(st.lists(inner, max_size=4), st.none() | st.integers(0, 5)).map(
            lambda pair: deque(*pair)
        ),
    )


@given(st.recursive(scalars, containers, max_leaves=30))
def test_every_value_comes_back_exactly(value: Any) -> None:
    assert same(through(value), value)


def nan_with(bits: int) -> float:
    [value] = struct.unpack(">d", struct.pack(">Q", bits))
    return float(value)


@pytest.mark.parametrize(
    "value",
    [
        -0.0, math.inf, -math.inf, nan_with(0x7FF8000000000123), nan_with(0xFFF8000000000000),
        5e-324, 1.7976931348623157e308, 2**53 + 1, -(2**64), 1 << 9000, 1, 1.0, True,
        "\ud800", "", "é", {"\udfff": 1}, {1: "a", "1": "b"}, {True: 1}, {"a.b": 1},
        {"dict": {"tuple": [1]}}, [["int", "0x1"]],
    ],
)  # fmt: skip
def test_what_json_alone_would_lose(value: Any) -> None:
    assert same(through(value), value)


def test_a_modules_state_dict_keeps_its_versions() -> None:
    value: Any = OrderedDict(weight=1)
    value._metadata = {"": {"version": 2}}
    assert through(value)._metadata == {"": {"version": 2}}


def test_the_same_set_gives_the_same_bytes() -> None:
    """The order of a set of texts differs between processes."""
    one, other = {"a", "b", "c", "i"}, {"i", "c", "b", "a"}
    assert tree.to_json(tree.encode(one, no_leaf)) == tree.to_json(tree.encode(other, no_leaf))


class Colour(enum.IntEnum):
    RED = 1


class Foo:
    pass


Point = namedtuple("Point", "x y")
HERE = __name__


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({"a": [1, Foo()]}, f'state["a"][1] is a {HERE}.Foo: give it state_dict() and load_st'),
        ({"c": Colour.RED}, f'state["c"] is a {HERE}.Colour: give its plain value'),
        ({"p": Point(1, 2)}, f'state["p"] is a {HERE}.Point: give it as a plain tuple or dict'),
        ({3: defaultdict(lambda: 1)}, "state[3] has a custom default: give it as a plain dict"),
        ({(1, Foo): 1}, "is a type: give it"),
        ([print], "state[0] is a builtin_function_or_method: give it"),
    ],
)  # fmt: skip
def test_what_cannot_be_restored_is_refused_with_its_path(value: Any, sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        tree.encode(value, no_leaf)
    assert sentence in refused.value.sentence


def test_a_value_that_holds_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(ConfigError, match="does it hold itself"):
        tree.encode(value, no_leaf)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(sorted(tree._DECODERS)) | st.text(), inner, max_size=2)
    ),
    max_leaves=20,
)


@given(json_values)
def test_a_tree_that_is_not_ours_gives_a_value_or_one_kind_of_error(node: Any) -> None:
    with contextlib.suppress(DamagedTreeError):
        tree.decode(node, no_kind)


@given(st.binary())
def test_bytes_that_are_no_json_give_one_kind_of_error(text: bytes) -> None:
    with contextlib.suppress(DamagedTreeError):
        tree.from_json(text)


@pytest.mark.parametrize(
    "node",
    [
        {"int": "zz"}, {"int": 5}, {"float": "00"}, {"bytes": "%"}, {"tuple": {"a": 1}},
        {"pairs": [[1]]}, {"pairs": [[[], 1]]}, {"set": [[1]]}, {"deque": [-1, []]},
        {"defaultdict": ["eval", []]}, {"what": 1}, {"int": "0x1", "float": ""}, {}, {"dict": []},
        {"ordered": []}, {"text": "gA=="},
    ],
    ids=str,
)  # fmt: skip
def test_each_kind_of_damage_is_an_error(node: Any) -> None:
    with pytest.raises(DamagedTreeError, match="the saved state is damaged"):
        tree.decode(node, no_kind)


@pytest.mark.parametrize("kind", ["tuple", "set", "pairs", "dict", "ordered"])
def test_no_tree_is_deep_enough_to_break_the_reader(kind: str) -> None:
    node: Any = []
    for _ in range(100_000):
        node = {kind: [node]}
    with pytest.raises(DamagedTreeError):
        tree.decode(node, no_kind)
    while node:  # taken apart by hand: the collector of old Pythons would recurse
        node = node[kind] if isinstance(node, dict) else node[0]
    with pytest.raises(DamagedTreeError):
        tree.from_json(b"[" * 100_000 + b"]" * 100_000)
