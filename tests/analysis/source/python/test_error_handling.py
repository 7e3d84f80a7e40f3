from __future__ import annotations

import ast
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.source.collectives.communication import backends, reached
from holdfast.analysis.source.program import Program
from holdfast.analysis.source.python.error_handling import (
    FALLS,
    around,
    caught,
    endings,
    is_last_act,
)
from holdfast.analysis.source.python.error_text_tests import REGEX, TextTest, text_tests


def program(text: str) -> Program:
    text = textwrap.dedent(text)
    return Program(ast.parse(text), text, "train.py")


@pytest.mark.parametrize(
    ("body", "ways"),
    [
        ("pass", {FALLS}),
        ("raise", {"raise"}),
        ("raise\npass", {"raise"}),
        ("if a:\n  raise", {"raise", FALLS}),
        ("if a:\n  raise\nelse:\n  return", {"raise", "return"}),
        ("import sys\nsys.exit(1)", {"exit"}),
        ("for x in y:\n  break", {FALLS}),
        ("while a:\n  return", {"return", FALLS}),
        ("with a:\n  raise", {"raise"}),
        ("try:\n  return\nexcept E:\n  pass", {"return", FALLS}),
        ("try:\n  a()\nfinally:\n  raise", {"raise"}),
        ("match a:\n  case 1:\n    raise", {"raise", FALLS}),
        ("log()\ncontinue", {"continue"}),
    ],
)
def test_how_a_block_is_left(body: str, ways: set[str]) -> None:
    # only parsed: a `return` needs no function
    assert endings(program(body), ast.parse(body).body) == ways


def test_only_the_body_of_a_try_is_guarded_by_it() -> None:
    script = program("""
        try:
            a()
            def later():
                b()
        except (RuntimeError, mine.Trouble):
            c()
        finally:
            d()
    """)
    guarded = {call.written: list(around(script, call.node)) for call in script.calls}
    assert {name: len(tries) for name, tries in guarded.items()} == {"a": 1, "b": 0, "c": 0, "d": 0}
    assert caught(script.tries[0].handlers[0]) == {"RuntimeError", "Trouble"}


def test_what_is_in_a_finally_is_the_last_act() -> None:
    script = program("""
        try:
            try:
                a()
            except E:
                pass
        finally:
            try:
                b()
            except E:
                pass
    """)
    assert [is_last_act(script, one) for one in script.tries] == [False, False, True]


def test_one_call_deep_and_no_deeper() -> None:
    script = program("""
        import torch.distributed as dist
        from horovod import torch as hvd
        from accelerate import Accelerator
        accelerator = Accelerator()
        def sync():
            dist.all_reduce(x)
        def outer():
            sync()
        outer()
        hvd.allreduce(x)
        accelerator.wait_for_everyone()
        other.gather(x)
    """)
    assert [(one.said, one.op) for one in reached(script)] == [
        ("dist.all_reduce", "all_reduce"),
        ("dist.all_reduce (in sync)", "all_reduce"),
        ("hvd.allreduce", "all_reduce"),
        ("accelerator.wait_for_everyone", "barrier"),
    ]


@pytest.mark.parametrize(
    ("call", "kinds"),
    [
        ("dist.init_process_group('NCCL')", {"nccl"}),
        ("dist.init_process_group(backend='cpu:gloo,cuda:nccl')", {"gloo", "nccl"}),
        ("dist.init_process_group(args.backend)", set()),
        ("dist.init_process_group()", set()),
        ("deepspeed.init_distributed(dist_backend='nccl')", {"nccl"}),
        ("pass", set()),
    ],
)
def test_which_backend(call: str, kinds: set[str]) -> None:
    text = f"import deepspeed\nimport torch.distributed as dist\n{call}"
    assert backends(program(text)) == kinds


@given(
    words=st.lists(st.text(max_size=8), min_size=1, max_size=3),
    how=st.sampled_from([*REGEX, "in", "is", "startswith", "endswith"]),
    fold=st.sampled_from(["", "lower", "upper", "casefold", "ignore"]),
    text=st.text(max_size=20),
)
def test_any_test_can_be_tried_on_any_text(
    words: list[str], how: str, fold: str, text: str
) -> None:
    test = TextTest(ast.Constant(""), tuple(words), how, fold)
    assert test.finds(text) in (True, False)


def test_a_test_is_followed_through_names_and_loops() -> None:
    script = program("""
        import re
        try:
            a()
        except E as e:
            text = str(e).lower()
            "a" in text
            re.search("b", repr(e), re.I)
            any(w in e.args[0] for w in ("c", "d"))
            str(e).startswith(("e", "f"))
            "g" in other
            str(e) == "h"
    """)
    found = list(text_tests(script, script.tries[0].handlers[0]))
    assert sorted((one.words, one.how, one.fold) for one in found) == [
        (("a",), "in", "lower"),
        (("b",), "re.search", "ignore"),
        (("c", "d"), "in", ""),
        (("e", "f"), "startswith", ""),
        (("h",), "is", ""),
    ]
