"""Notebooks: one program of all cells, at the lines of the file where they stand there."""

from __future__ import annotations

import json
from typing import Any

from holdfast.lint.readers import notebook
from holdfast.lint.readers.notebook import Notebook


def made(*cells: str | list[str]) -> dict[str, Any]:
    listed: list[dict[str, Any]] = [
        {"cell_type": "code", "metadata": {}, "source": cell} for cell in cells
    ]
    words = {"cell_type": "markdown", "metadata": {}, "source": ["dist.barrier()\n"]}
    return {"cells": [words, *listed], "nbformat": 4}


def barriers(made: Notebook | str) -> list[tuple[str, int, int]]:
    assert isinstance(made, Notebook)
    program = made.source.program
    assert program is not None
    places = [program.place(call.node) for call in program.called("torch.distributed.barrier")]
    return [(place.file, place.line, place.column) for place in places]


CELLS = (
    ["import torch.distributed as dist\n", "print('é \"x\"')"],
    ["%time\n", "if True:\n", "    dist.barrier()"],
)


def test_places_are_those_of_the_file() -> None:
    text = json.dumps(made(*CELLS), indent=1, ensure_ascii=False)
    ((file, line, column),) = barriers(notebook.read(text, "demo.ipynb"))
    shown = text.splitlines()[line - 1]
    assert file == "demo.ipynb"
    assert shown[column - 1 :].startswith("dist.barrier()")


def test_a_notebook_on_one_line_counts_through_its_cells() -> None:
    text = json.dumps(made(*CELLS))
    assert barriers(notebook.read(text, "demo.ipynb")) == [("demo.ipynb (cells)", 5, 5)]


def test_a_cell_as_one_text_and_empty_ones() -> None:
    text = json.dumps(made("import torch.distributed as dist\ndist.barrier()\n", "", []), indent=1)
    assert barriers(notebook.read(text, "demo.ipynb")) == [("demo.ipynb (cells)", 2, 1)]


def test_what_is_no_notebook() -> None:
    for text in ("", "{}", "[1]", '{"cells": 3}', '{"cells": [1]}'):
        assert notebook.read(text, "x.ipynb") == "not a notebook: its JSON has no cells"
    deep = notebook.read("[" * 100_000, "x.ipynb")
    assert deep == "its JSON is nested too deeply to be read"


def test_what_a_cell_hands_to_another_program_is_passed_over() -> None:
    cells = (
        "%%bash\nexport A=1\nif then",
        "import torch.distributed as dist",
        "%%time\ndist.barrier()",
    )
    made_of = notebook.read(json.dumps(made(*cells)), "x.ipynb")
    assert barriers(made_of) == [("x.ipynb (cells)", 6, 1)]
    assert isinstance(made_of, Notebook)
    assert made_of.source.refused is None
    written = made("%%writefile train.py\nimport torch.distributed as dist\ndist.barrier()\n")
    assert barriers(notebook.read(json.dumps(written), "x.ipynb")) == [("x.ipynb (cells)", 3, 1)]


def test_the_text_of_the_code_is_where_the_places_say() -> None:
    for indent in (1, None):
        text = json.dumps(made(*CELLS), indent=indent, ensure_ascii=False)
        read = notebook.read(text, "demo.ipynb")
        ((_, line, column),) = barriers(read)
        assert isinstance(read, Notebook)
        assert read.text.split("\n")[line - 1][column - 1 :] == "dist.barrier()"
