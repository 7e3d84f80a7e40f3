"""The index of a Python script: names through imports, parents, what calls what."""

from __future__ import annotations

import ast
import gc
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.source.collectives.torch_calls import COLLECTIVES, distributed
from holdfast.analysis.source.program import Program, constant, dotted, once_per_program
from holdfast.analysis.source.ranks import missed_collectives
from holdfast.lint.readers import python


def program(text: str) -> Program:
    found = python.read(f"# torch.distributed\n{text}", "train.py").program
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("imports", "call"),
    [
        ("import torch.distributed as dist", "dist.all_reduce(x)"),
        ("import torch.distributed", "torch.distributed.all_reduce(x)"),
        ("import torch", "torch.distributed.all_reduce(x)"),
        ("from torch import distributed", "distributed.all_reduce(x)"),
        ("from torch import distributed as d", "d.all_reduce(x)"),
        ("from torch.distributed import all_reduce", "all_reduce(x)"),
        ("from torch.distributed import all_reduce as ar", "ar(x)"),
        ("from torch.distributed import *", "all_reduce(x)"),
        ("from torch.distributed import distributed_c10d as c10d", "c10d.all_reduce(x)"),
        ("import torch\ndist = torch.distributed", "dist.all_reduce(x)"),
        ("import deepspeed.comm as dist", "dist.all_reduce(x)"),
        ("try:\n    import torch.distributed as dist\nexcept ImportError: dist = None",
         "dist.all_reduce(x)"),
    ],
)  # fmt: skip
def test_a_collective_is_known_however_it_was_imported(imports: str, call: str) -> None:
    seen = program(f"{imports}\n{call}")
    assert [distributed(seen, one) for one in seen.calls if one.written == call[:-3]] == [
        "all_reduce"
    ]


@pytest.mark.parametrize(
    "text",
    [
        "import numpy as dist\ndist.all_reduce(x)",
        "def all_reduce(x): ...\nfrom torch.distributed import *\nall_reduce(x)",
        "import torch.distributed as dist\nself.dist.all_reduce(x)",
        "import torch.distributed as dist\ndist.rpc.all_reduce(x)",
    ],
)
def test_what_only_sounds_like_it_is_none(text: str) -> None:
    seen = program(text)
    assert not any(distributed(seen, call) in COLLECTIVES for call in seen.calls)


def test_parents_lead_to_the_function_and_the_module() -> None:
    seen = program("def f():\n    if x:\n        g(1)\ndef g(n): ...")
    call = seen.calls[0]
    f, g = seen.functions
    assert seen.function_of(call.node) is f
    assert list(seen.above(call.node))[-1] is seen.tree
    assert seen.target(call) is g
    assert seen.calls_in(f) == [call]
    assert seen.calls_in(g) == []


def test_methods_are_reached_through_self() -> None:
    seen = program("class A:\n    def run(self): self.save()\n    def save(self): ...")
    assert [seen.target(call) for call in seen.calls] == [seen.functions[1]]


def test_of_two_functions_with_one_name_none_is_meant() -> None:
    seen = program("class A:\n    def f(self): ...\nclass B:\n    def f(self): ...\nf()")
    assert seen.target(seen.calls[0]) is None


def test_arguments_by_position_and_name() -> None:
    call = program("f(1, b=2)").calls[0]
    assert constant(call.argument(0, "a")) == 1
    assert constant(call.argument(1, "b")) == 2
    assert call.argument(2, "c") is None
    assert not call.starred
    assert program("f(*a, **b)").calls[0].starred


def test_lines_and_columns_are_those_of_the_file() -> None:
    seen = python.read("import torch\ntorch.save(x)", "doc.md", first_line=10, indent=4).program
    assert seen is not None
    place = seen.place(seen.calls[0].node)
    assert (place.line, place.column) == (11, 5)


SHAPES = [
    "x = 1",
    "def f(a): return [b for b in a]",
    "match x:\n    case [1, *r]: f(r)",
    "try: f()\nexcept E as e: g(e)",
    "with a as b: f'{b!r:>{c}}'",
    "async def f():\n    async for i in x: await g(i)",
    "del x[0]",
    "lambda *a, k=1, **b: (yield)",
    "x: int = 3",
    "@d(1)\nclass C(B, k=v(2)): ...",
]


def test_columns_count_characters_not_bytes() -> None:
    seen = python.read('import torch.distributed\nx = "é…ü"; torch.save(x)', "train.py").program
    assert seen is not None
    assert seen.place(seen.calls[-1].node).column == 12


@given(st.lists(st.sampled_from(SHAPES), max_size=6).map("\n".join))
def test_every_call_of_the_tree_is_found_and_has_parents(text: str) -> None:
    seen = program(text)
    by_ast = [node for node in ast.walk(seen.tree) if isinstance(node, ast.Call)]
    assert {call.node for call in seen.calls} == set(by_ast)
    for node in ast.walk(seen.tree):
        if isinstance(node, ast.expr | ast.stmt):
            assert list(seen.above(node))[-1] is seen.tree


@pytest.mark.parametrize(("text", "name"), [("a.b.c", "a.b.c"), ("a().b", ""), ("a[0].b", "")])
def test_dotted(text: str, name: str) -> None:
    assert dotted(ast.parse(text, mode="eval").body) == name


def test_an_answer_is_worked_out_once_for_each_program() -> None:
    asked: list[Program] = []

    @once_per_program
    def calls(program: Program) -> int:
        asked.append(program)
        return len(program.calls)

    programs = [program(f"f({text})\n") for text in ("", "g()", "g(h())")]
    for _ in range(3):
        assert [calls(one) for one in programs] == [1, 2, 3]
    assert asked == programs
    programs[0].forget()
    assert calls(programs[0]) == 1
    assert len(asked) == 4


def test_a_program_that_has_forgotten_its_answers_is_freed_without_the_collector() -> None:
    gc.disable()
    try:
        text = "import torch.distributed as dist\nif dist.get_rank():\n    dist.barrier()\n"
        script = program(text)
        assert missed_collectives.missed_collectives(script)
        gone = weakref.ref(script)
        script.forget()
        del script
        assert gone() is None
    finally:
        gc.enable()
