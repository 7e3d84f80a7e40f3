"""A configuration has one text, in every process; what has none is left out, not refused later."""

from __future__ import annotations

import argparse
import enum
import functools
import json
import logging
import os
import subprocess
import sys
from collections import OrderedDict, namedtuple
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from holdfast.checkpoint.config_texts import LONGEST_TEXT, NO_TEXT, is_compared, is_same, texts
from holdfast.errors import ConfigError


@dataclass
class Inner:
    lr: float = 0.1
    betas: tuple[float, float] = (0.9, 0.95)


@dataclass
class Outer:
    name: str
    inner: Inner = field(default_factory=Inner)


class Struct(msgspec.Struct):
    depth: int = 3


class Colour(enum.Enum):
    RED = 1


class Mode(str, enum.Enum):
    FAST = "fast"


class Plain:
    """No repr of its own: it is printed with its address."""


class Printed:
    def __repr__(self) -> str:
        return "Printed(3)"


class Broken:
    def __repr__(self) -> str:
        raise RuntimeError("no")


class Counting:
    calls = 0

    def __repr__(self) -> str:
        Counting.calls += 1
        return f"Counting({Counting.calls})"


class Lazy(Mapping[str, Any]):
    """As OmegaConf's: a mapping of its own kind, one of whose values must still be given."""

    def __init__(self, **values: Any) -> None:
        self._values = values

    def __getitem__(self, key: str) -> Any:
        if self._values[key] == "???":
            raise ValueError(f"missing value: {key}")
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


Point = namedtuple("Point", "x y")


def main(*_: object, **__: object) -> None: ...


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1, "0.1"),
        (1e-05, "1e-05"),
        (1.0, "1.0"),
        (1, "1"),
        (True, "True"),
        (None, "None"),
        ("a", "a"),
        (b"a", "b'a'"),
        ([1, "a"], "[1, 'a']"),
        ((1, 2), "(1, 2)"),
        (Point(1, 2), "(1, 2)"),
        ({"b", "a", "c"}, "{'a', 'b', 'c'}"),
        (frozenset({2, 10}), "{10, 2}"),
        ({}, "{}"),
        ([{"b": 1, "a": {2, 1}}], "[{'a': {1, 2}, 'b': 1}]"),
        ([Inner()], "[{'betas': (0.9, 0.95), 'lr': 0.1}]"),
        (Path("/data/x"), "/data/x"),
        (Colour.RED, "Colour.RED"),
        (Mode.FAST, "fast"),
        ([Mode.FAST], "[Mode.FAST]"),
        (torch.float32, "torch.float32"),
        (torch.device("cuda:1"), "cuda:1"),
        (torch.Size([2, 3]), "(2, 3)"),
        (torch.tensor([1, 2]), "[1, 2]"),
        (torch.tensor(0.5), "0.5"),
        (np.float64(0.1), "0.1"),
        (np.int64(3), "3"),
        (np.bool_(True), "True"),
        (np.arange(3), "[0, 1, 2]"),
        (np.dtype("int8"), "dtype('int8')"),
        (main, f"{__name__}.main"),
        (Plain, f"{__name__}.Plain"),
        (len, "builtins.len"),
        (
            functools.partial(main, 1, k={"b", "a"}),
            f"partial({__name__}.main, (1), {{'k': {{'a', 'b'}}}})",
        ),
        (range(3), "range(0, 3)"),
        (Printed(), "Printed(3)"),
        (Plain(), NO_TEXT),
        ([Plain()], NO_TEXT),
        ({"a": 1, 2: Plain()}, None),
        (Broken(), NO_TEXT),
        (logging.StreamHandler, "logging.StreamHandler"),
        (functools.partial(main, Plain()), NO_TEXT),
        (Counting(), NO_TEXT),
        (os.environ.get, None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_value_has_one_text_or_none(value: Any, text: str | None) -> None:
    found = texts({"key": value})
    if text is not None:
        assert found == {"key": text}
    assert found == texts({"key": value})
    assert "0x" not in str(found)


def test_a_configuration_in_any_shape_becomes_flat_text() -> None:
    assert texts(Outer("a")) == {"name": "a", "inner.lr": "0.1", "inner.betas": "(0.9, 0.95)"}
    assert texts({"opt": Outer("a"), "n": 1})["opt.inner.lr"] == "0.1"
    assert texts(argparse.Namespace(lr=0.1, func=main)) == {"lr": "0.1", "func": f"{__name__}.main"}
    assert texts(vars(argparse.Namespace(lr=0.1))) == {"lr": "0.1"}
    assert texts(SimpleNamespace(opt=SimpleNamespace(lr=0.1))) == {"opt.lr": "0.1"}
    assert texts(OrderedDict(opt={"lr": 0.1}, n=1)) == {"opt.lr": "0.1", "n": "1"}
    assert texts({"s": Struct()}) == {"s.depth": "3"}
    assert texts(Lazy(lr=0.1, out="???")) == {"lr": "0.1", "out": NO_TEXT}
    assert texts(None) == {}


@pytest.mark.parametrize("config", [3, [1], "lr=0.1", (1, 2)])
def test_what_is_no_configuration_is_said(config: object) -> None:
    with pytest.raises(ConfigError, match="config must be a mapping, a namespace or a dataclass"):
        texts(config)


def test_what_holds_itself_ends() -> None:
    config: dict[str, Any] = {"lr": 0.1}
    config["me"], config["also"] = config, [config]
    items: list[Any] = []
    items.append(items)
    found = texts(config | {"items": items})
    assert found["lr"] == "0.1"
    assert found["items"] == NO_TEXT


def test_secrets_are_found_by_the_rule_of_all_of_holdfast() -> None:
    secret = {"wandb_key": "abc", "auth": "abc", "hf": {"pat": "abc"}}
    found = texts({**secret, "db_url": "postgres://u:hunter2@h", "tokenizer": "gpt2"})
    assert found.pop("tokenizer") == "gpt2"
    assert len(found) == 4
    assert all(text.startswith("sha256:") for text in found.values())
    assert texts({"max_tokens": 9, "token_count": 7}) == {"max_tokens": "9", "token_count": "7"}


def test_a_value_that_was_saved_as_a_digest_is_the_same() -> None:
    """By earlier versions, to which a tokenizer was a secret."""
    digest = texts({"my_token": "gpt2"})["my_token"]
    assert is_same(digest, "gpt2")
    assert is_same("gpt2", digest)
    assert not is_same(digest, "gpt3")


def test_secrets_and_long_texts_are_digests() -> None:
    found = texts({"hf_token": "hush", "deep": [{"password": "hush"}], "long": "x" * 10**6})
    assert "hush" not in str(found)
    assert found["hf_token"].startswith("sha256:")
    assert len(found["long"]) < LONGEST_TEXT
    assert found["long"] != texts({"long": "x" * 10**6 + "y"})["long"]


def test_only_the_texts_that_say_so_are_left_out() -> None:
    found = texts({"a": Plain(), "b": "0x7f00000000", "c": ""})
    assert {key: is_compared(text) for key, text in found.items()} == {
        "a": False, "b": True, "c": True,
    }  # fmt: skip


leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
hashable = st.recursive(leaves, lambda inner: st.tuples(inner, inner), max_leaves=3)
values = st.recursive(
    leaves | st.sets(st.text(max_size=5), min_size=2) | st.frozensets(hashable, max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5), inner, max_size=3)
        | st.tuples(inner, inner)
    ),
    max_leaves=10,
)
configs = st.dictionaries(st.text(max_size=5), values, max_size=4)

PRINT_TEXTS = """
import json, sys
from holdfast.checkpoint.config_texts import texts
lines = open(sys.argv[1], encoding="utf-8", errors="surrogatepass").read().splitlines()
names = {"inf": float("inf")}
print(json.dumps([texts(eval(line, names)) for line in lines]))
"""


@settings(
    max_examples=2,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(configs, min_size=30, max_size=40))
def test_equal_configurations_have_equal_texts_in_any_process(
    tmp_path: Path, drawn: list[dict[str, Any]]
) -> None:
    source = tmp_path / "configs.txt"
    source.write_text("\n".join(ascii(config) for config in drawn))
    found = []
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", PRINT_TEXTS, str(source)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        found.append(json.loads(done.stdout))
    assert found[0] == found[1]
    here = [texts(config) for config in drawn]
    assert found[0] == json.loads(json.dumps(here))
    assert all(is_compared(text) for one in here for text in one.values())
