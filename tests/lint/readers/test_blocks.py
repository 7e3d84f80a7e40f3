"""Code blocks of documents, at the lines and columns of the file."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.lint.readers import blocks
from holdfast.lint.readers.blocks import CodeBlock


def found(text: str) -> list[CodeBlock]:
    return blocks.markdown(text)


@pytest.mark.parametrize(
    ("text", "block"),
    [
        ("```bash\na\n```\n", CodeBlock("bash", "a\n", 2, 0)),
        ("~~~sh\na\n~~~\n", CodeBlock("sh", "a\n", 2, 0)),
        ("````md\n```\na\n```\n````\n", CodeBlock("md", "```\na\n```\n", 2, 0)),
        ("```bash\na", CodeBlock("bash", "a\n", 2, 0)),
        ("```\na\n```\n", CodeBlock("", "a\n", 2, 0)),
        ("- x\n\n  ```python\n  a\n    b\n  ```\n", CodeBlock("python", "a\n  b\n", 4, 2)),
        ("1. ```sh\n   a\n   ```\n", CodeBlock("sh", "a\n", 2, 3)),
        ("> ```sh\n> a\n> b\n> ```\n", CodeBlock("sh", "a\nb\n", 2, 2)),
        ('```python title="x" {1,3}\na\n```\n', CodeBlock("python", "a\n", 2, 0)),
        ("``` {.python .numberLines}\na\n```\n", CodeBlock("python", "a\n", 2, 0)),
        ("```{code-block} bash\na\n```\n", CodeBlock("bash", "a\n", 2, 0)),
        ("```Bash\na\n```   \n", CodeBlock("bash", "a\n", 2, 0)),
        ("Text.\n\n    $ a\n\n    b\n\nText.\n", CodeBlock("", "$ a\n\nb\n\n", 3, 4)),
    ],
)
def test_markdown(text: str, block: CodeBlock) -> None:
    assert found(text) == [block]


@pytest.mark.parametrize(
    "text", ["a `b` c\n", "- a\n\n    still the list\n", "```a``` is inline\n", "\n    words\n", ""]
)
def test_no_block(text: str) -> None:
    assert blocks.markdown(text) == []


@pytest.mark.parametrize(
    ("text", "block"),
    [
        (".. code-block:: bash\n\n   a\n   b\n\nText.\n", CodeBlock("bash", "\na\nb\n\n", 2, 3)),
        (".. code-block:: python\n   :linenos:\n\n   a\n", CodeBlock("python", "\n\na\n", 2, 3)),
        ("Run::\n\n    a\n\nText.\n", CodeBlock("", "\na\n\n", 2, 4)),
    ],
)
def test_rst(text: str, block: CodeBlock) -> None:
    assert blocks.rst(text) == [block]


@given(st.lists(st.sampled_from(["```sh", "```", "~~~", "    a", "- b", "> c", "", "d"])))
def test_no_line_is_in_two_blocks_and_each_is_that_of_the_file(lines: list[str]) -> None:
    numbers: list[int] = []
    for block in blocks.markdown("\n".join(lines)):
        for offset, line in enumerate(block.text.split("\n")[:-1]):
            numbers.append(block.first_line + offset)
            assert lines[numbers[-1] - 1].endswith(line)
    assert len(numbers) == len(set(numbers))


def test_only_a_line_feed_ends_a_line() -> None:
    odd = "a\u2028b\x0c\x1c\x85\n"
    assert found(f"{odd}```sh\nx\n```\n") == [CodeBlock("sh", "x\n", 3, 0)]
    assert blocks.rst(f"{odd}\n.. code-block:: sh\n\n   x\n")[0].first_line == 4
