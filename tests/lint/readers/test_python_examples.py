"""Python in documents: prompts and magics go, imports carry over, no line moves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.source.source import Source
from holdfast.lint.readers import python_examples

HEAD = "import torch.distributed as dist\n"
BARRIER = "torch.distributed.barrier"


def block(text: str, *, first_line: int = 1, indent: int = 0) -> Source:
    made = python_examples.read_block(text, "guide.md", first_line=first_line, indent=indent)
    assert made is not None
    return made


def calls(source: Source) -> list[tuple[str, int, int]]:
    program = source.program
    assert program is not None
    places = [(call.name, program.place(call.node)) for call in program.calls]
    return [(name, place.line, place.column) for name, place in places]


@pytest.mark.parametrize(
    "text",
    [
        "for x in y:\n    # later\ndist.barrier()\n",
        "x = <your model>\n\ndist.barrier()\n",
        "print 'hello'\n\ndist.barrier()\n",
        "f(a=1, ...)\ndist.barrier()\n",
        "    def sync(self):\n        dist.barrier()\n",
        "cat > x.py << EOF\ndist.barrier()\nEOF\n",
        "\0",
        "(" * 100_000,
    ],
)
def test_an_example_that_python_refuses_is_passed_over(text: str) -> None:
    assert python_examples.read_block(HEAD + text, "guide.md") is None


@pytest.mark.parametrize("line", ["!pip install x", "! pip install -q x", "%cd /tmp", "%%capture"])
def test_a_cell_may_begin_with_what_is_not_python(line: str) -> None:
    source = python_examples.read_cells(f"%%capture\n{line}\n{HEAD}dist.barrier()\n", "a.ipynb")
    assert calls(source) == [(BARRIER, 4, 1)]


def test_an_operator_at_the_start_of_a_line_is_python() -> None:
    source = python_examples.read_cells(f"{HEAD}(1\n!= dist.barrier())\n", "a.ipynb")
    assert calls(source) == [(BARRIER, 3, 4)]


def test_a_notebook_that_python_refuses_says_so() -> None:
    source = python_examples.read_cells("import os\nx = <model>\n", "a.ipynb", indent=4)
    assert source.program is None
    assert source.refused is not None
    assert (source.refused.place.line, source.refused.place.column) == (2, 9)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (">>> import torch.distributed as dist\n>>> dist.barrier()\nNone\n", (2, 5)),
        (">>> import torch.distributed as dist\n>>> if x:\n...     dist.barrier()\n", (3, 9)),
        ("%matplotlib inline\nimport torch.distributed as dist\ndist.barrier()\n", (3, 1)),
        ("!pip install torch\nimport torch.distributed as dist\ndist.barrier()\n", (3, 1)),
        ("import torch.distributed as dist\nf(...)\n...\ndist.barrier()\n", (4, 1)),
    ],
)
def test_prompts_and_magics_are_taken_off(text: str, place: tuple[int, int]) -> None:
    source = block(text)
    assert source.refused is None
    assert (BARRIER, *place) in calls(source)


def test_later_examples_are_read_with_the_imports_of_earlier_ones() -> None:
    imports = python_examples.SharedImports()
    imports.added_to(block(HEAD))
    later = imports.added_to(block("dist.barrier()\n", first_line=9, indent=2))
    assert calls(later) == [(BARRIER, 9, 3)]
    own = imports.added_to(block("import os\ndist.barrier()\n", first_line=9))
    assert calls(own) == [("", 10, 1)]


@given(st.text(alphabet="ab:=()[]#'\"\n\t .>%!if", max_size=60))
def test_any_text_is_a_program_or_is_passed_over(text: str) -> None:
    made = python_examples.read_block(text, "guide.md", first_line=5)
    assert made is None or (made.program and not made.refused)


def test_a_long_document_does_not_carry_its_imports_many_times() -> None:
    """Every later example would be read with all of them."""
    imports = python_examples.SharedImports()
    for number in range(2000):
        imports.added_to(block(f"import torch\nimport m{number}\n"))
    later = imports.added_to(block("torch.save(x, 'y')\n")).program
    assert later is not None
    assert len(later.tree.body) == python_examples.MOST_IMPORTS + 1
    assert later.called("torch.save")
