"""Comments that ask lint to be silent: where they count, and for what."""

from __future__ import annotations

import ast
import random

import pytest

from holdfast.analysis.source.source import Source, SourceKind
from holdfast.findings import Finding, Place, Status
from holdfast.lint.ignore import IgnoreComments, Statements, names_of
from holdfast.lint.readers import python


def finding(line: int) -> Finding:
    return Finding(
        code="HOLD613",
        slug="timeout-keyword",
        status=Status.ERROR,
        summary="seen",
        place=Place(file="x", line=line),
    )


def hidden(text: str, line: int) -> bool:
    return IgnoreComments(text).hides(finding(line), Source(file="x", kind=SourceKind.SHELL))


@pytest.mark.parametrize(
    "comment",
    [
        "# holdfast: ignore",
        "# holdfast: ignore[timeout-keyword]",
        "# holdfast: ignore[port-in-use, HOLD613]",
        "# holdfast: ignore[hold613] - known",
        "#holdfast:ignore[Timeout-Keyword]",
        "# holdfast: ignore[HOLD6]",
        "# why  # holdfast: ignore[timeout-keyword]",
    ],
)
def test_on_the_line_and_on_the_line_above(comment: str) -> None:
    assert hidden(f"one\ntwo  {comment}\nthree\n", 2)
    assert not hidden(f"one\ntwo  {comment}\nthree\n", 3)
    assert not hidden(f"one\ntwo  {comment}\nthree\n", 1)
    if comment.startswith(("# h", "#h")):
        assert hidden(f"one\n  {comment}\n\nthree\n", 4)


@pytest.mark.parametrize(
    "text",
    [
        "two  # holdfast: ignore[port-in-use]\n",
        "two  # holdfast: ignore[]\n",
        "speaks of `# holdfast: ignore`\n",
        "x = '# holdfast: ignore'\n",
        "# holdfast ignore\n",
    ],
)
def test_what_hides_nothing(text: str) -> None:
    assert not hidden(text, 1)


def test_for_a_whole_file() -> None:
    assert hidden("one\ntwo\n# holdfast: ignore-file[timeout-keyword]\n", 1)
    assert hidden("# holdfast: ignore-file\none\n", 2)
    assert not hidden("# holdfast: ignore-file[port-in-use]\none\n", 2)


def test_the_first_line_of_a_statement_counts_for_all_of_it() -> None:
    script = (
        "import torch.distributed as dist\ndist.all_reduce(  # holdfast: ignore\n  x,\n  t=5)\n"
    )
    source = python.read(script, "x.py")
    assert IgnoreComments(script).hides(finding(4), source)
    above = script.replace("  # holdfast: ignore", "").replace(
        "dist.all", "# holdfast: ignore\ndist.all"
    )
    assert IgnoreComments(above).hides(finding(5), python.read(above, "x.py"))
    assert hidden("# holdfast: ignore\ntorchrun \\\n  --nnodes 2 \\\n  x.py\necho\n", 4)
    assert not hidden("# holdfast: ignore\ntorchrun \\\n  --nnodes 2 \\\n  x.py\necho\n", 5)


def test_in_markdown() -> None:
    text = (
        "<!-- holdfast: ignore[timeout-keyword] -->\n\n```python\na\nb\n```\n\n"
        "`c` <!-- holdfast: ignore -->\n`d`\n"
    )
    assert [hidden(text, line) for line in (4, 5, 8, 9)] == [True, True, True, False]


def test_a_name_that_no_fault_has_is_reported() -> None:
    known = frozenset(names_of("HOLD613", "timeout-keyword"))
    ignored = IgnoreComments("# holdfast: ignore[timeout-kewyord,HOLD613,6]\n# holdfast: ignore\n")
    assert ignored.unknown(known) == [(1, "timeout-kewyord")]


def slowly(tree: ast.Module, line: int) -> int:
    """The first line of the innermost statement around a line, by looking at all of them."""
    around = [
        (node.lineno, node.end_lineno or node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    return max(around, key=lambda span: (span[0], -span[1]))[0] if around else line


def test_the_statement_of_a_line_is_the_innermost_one() -> None:
    dice = random.Random(6)
    pieces = [
        "f(\n  1,\n  2,\n)\n",
        "x = 1; y = (\n 2)\n",
        "\n",
        "# words\n",
        "@d(\n 1)\ndef f(): pass\n",
    ]
    for _ in range(50):
        body = "".join(dice.choice(pieces) for _ in range(8))
        inner = "".join(f"  {line}\n" for line in body.splitlines())
        text = f"{body}if (a and\n  b):\n  pass\n{inner}else:\n  pass\n{inner}{body}"
        tree = ast.parse(text)
        statements = Statements(tree)
        for line in range(1, text.count("\n") + 2):
            assert statements.first_line(line) == slowly(tree, line), (line, text)


def test_many_findings_and_one_comment_take_no_longer_than_reading() -> None:
    """One walk for each finding would take minutes here."""
    script = "# holdfast: ignore-file[port-in-use]\n" + "f(\n  1)\n" * 5000
    source = python.read(f"import subprocess\n{script}", "x")
    ignored = IgnoreComments(script)
    assert not any(ignored.hides(finding(line), source) for line in range(1, 10_000))
    launch_script = "# holdfast: ignore-file[port-in-use]\nexport \\\n" + "  A=1 \\\n" * 10_000
    ignored = IgnoreComments(launch_script)
    shell = Source(file="x", kind=SourceKind.SHELL)
    assert not any(ignored.hides(finding(line), shell) for line in range(1, 10_000))


def test_only_a_line_feed_ends_a_line() -> None:
    for odd in "\u2028\x0b\x0c\x1c\x85":
        assert hidden(f"x = '{odd}'\ntwo  # holdfast: ignore\n", 2)
