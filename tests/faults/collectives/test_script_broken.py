from holdfast.catalogue import by_slug
from holdfast.findings import Place, Status
from holdfast.lint.readers import python, python_examples
from tests.faults.table import flags, leaves, lint_table

test_lint = lint_table(
    "script-broken",
    flags(
        "skipped",
        python.read_all("x = 1\nimport torch\ndef f(:\n", "train.py"),
        lines=[3],
        saying=["cannot parse it: SyntaxError"],
    ),
    flags(
        "skipped",
        python_examples.read_cells("import torch\nmodel = <yours>\n", "demo.ipynb"),
        lines=[2],
        saying=["cannot parse it: SyntaxError"],
    ),
    leaves(python.read_all("import torch.distributed\n", "train.py")),
    leaves(python_examples.read_cells("import torch.distributed\n%time\n", "demo.ipynb")),
)


def test_a_whole_script_may_be_meant_for_another_python() -> None:
    broken = python.read_all("x = 1\nimport torch\ndef f(:\n", "train.py")
    (finding,) = by_slug("script-broken").ask_lint(broken)
    assert finding.status is Status.SKIPPED
    assert finding.place == Place(file="train.py", line=3, column=7)
    assert "cannot parse it: SyntaxError" in finding.reason


def test_a_notebook_is_said_to_be_broken_at_its_line() -> None:
    broken = python_examples.read_cells("import torch\nmodel = <yours>\n", "demo.ipynb")
    (finding,) = by_slug("script-broken").ask_lint(broken)
    assert finding.status is Status.SKIPPED
    assert finding.place == Place(file="demo.ipynb", line=2, column=9)
