"""Examples that Python refuses are mended, and no line moves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.source.source import Source
from holdfast.lint.readers import mending

HEAD = "import torch.distributed as dist\n"


def calls(source: Source) -> list[tuple[str, int, int]]:
    program = source.program
    assert program is not None
    places = [(call.name, program.place(call.node)) for call in program.calls]
    return [(name, place.line, place.column) for name, place in places]


BARRIER = "torch.distributed.barrier"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("for x in y:\n    # later\ndist.barrier()\n", "IndentationError"),
        ("for x in y:  # why\n\ndist.barrier()\n", "IndentationError"),
        ("def f():\n    # one\n    # two\n\ndist.barrier()\n", "IndentationError"),
        ("if a:\n    if b:\n        # nothing\n\ndist.barrier()\n", "IndentationError"),
        ("x = <your model>\n\ndist.barrier()\n", "SyntaxError"),
        ("print 'hello'\n\ndist.barrier()\n", "SyntaxError"),
        ("for x in <data>:\n    pass\ndist.barrier()\n", "SyntaxError"),
    ],
)
def test_the_rest_is_still_read_at_its_own_line(text: str, error: str) -> None:
    source = mending.read(HEAD + text, "guide.md", first_line=20)
    last = 20 + text.rstrip("\n").count("\n") + 1
    assert (BARRIER, last, 1) in calls(source)
    assert source.refused is not None
    assert source.refused.error.startswith(error)
    assert source.refused.mended


def test_an_example_that_breaks_off() -> None:
    source = mending.read(HEAD + "dist.barrier()\nmodel = Model(\n", "guide.md")
    assert (BARRIER, 2, 1) in calls(source)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (">>> import torch.distributed as dist\n>>> dist.barrier()\nNone\n", (2, 5)),
        (">>> import torch.distributed as dist\n>>> if x:\n...     dist.barrier()\n", (3, 9)),
        ("%matplotlib inline\nimport torch.distributed as dist\ndist.barrier()\n", (3, 1)),
        ("!pip install torch\nimport torch.distributed as dist\ndist.barrier()\n", (3, 1)),
        ("import torch.distributed as dist\nf(...)\n...\ndist.barrier()\n", (4, 1)),
        ("import torch.distributed as dist\nf(a=1, ...)\ndist.barrier()\n", (3, 1)),
        ("import torch.distributed as dist\ndef f(…):\n    dist.barrier()\n", (3, 5)),
    ],
)
def test_prompts_and_magic_are_no_fault(text: str, place: tuple[int, int]) -> None:
    source = mending.read(text, "guide.md")
    assert source.refused is None
    assert (BARRIER, *place) in calls(source)


def test_later_examples_go_on_with_the_imports_of_earlier_ones() -> None:
    imports = mending.Imports()
    imports.shared(mending.read(HEAD, "guide.md"))
    later = imports.shared(mending.read("dist.barrier()\n", "guide.md", first_line=9, indent=2))
    assert calls(later) == [(BARRIER, 9, 3)]
    own = imports.shared(mending.read("import os\ndist.barrier()\n", "guide.md", first_line=9))
    assert calls(own) == [("", 10, 1)]


@given(st.text(alphabet="ab:=()[]#'\"\n\t .>%!if", max_size=60))
def test_any_text_is_a_program_or_is_refused(text: str) -> None:
    source = mending.read(text, "guide.md", first_line=5)
    assert source.program or source.refused
    if source.refused:
        assert 5 <= source.refused.place.line <= 5 + text.count("\n") + 1


def test_a_long_document_does_not_carry_its_imports_many_times() -> None:
    """Every later example would be read with all of them."""
    imports = mending.Imports()
    for number in range(2000):
        imports.shared(mending.read(f"import torch\nimport m{number}\n", "x.md"))
    later = imports.shared(mending.read("torch.save(x, 'y')\n", "x.md")).program
    assert later is not None
    assert len(later.tree.body) == mending.MOST_IMPORTS + 1
    assert later.called("torch.save")
