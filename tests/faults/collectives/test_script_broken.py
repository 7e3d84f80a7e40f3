from holdfast.catalogue import by_slug
from holdfast.findings import Place, Status
from holdfast.lint.readers import python, python_examples
from tests.analysis.logs.patterns.made import wreckage
from tests.faults.table import explain_table, flags, leaves, lint_table, passes_over, recognises

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

SCRIPT = ('  File "/job/prep.py", line 7', "    def load(:", "             ^")
REFUSED = (*SCRIPT, "SyntaxError: invalid syntax")

test_explain = explain_table(
    "script-broken",
    recognises(
        wreckage(*REFUSED),
        sure=0.9,
        what="/job/prep.py:7",
        saying=["Python could not compile", "none of that file ran"],
    ),
    recognises(wreckage(REFUSED[-1]), sure=0.6, saying=["a file"]),
    recognises(
        wreckage("launch.sh: line 4: syntax error near unexpected token `fi'"),
        sure=0.65,
        what="launch.sh:4",
        saying=["could not parse launch.sh at line 4"],
    ),
    recognises(
        wreckage("/bin/bash^M: bad interpreter: No such file or directory"),
        sure=0.93,
        saying=["line ends of Windows"],
    ),
    passes_over(wreckage('  File "<string>", line 1', "    a b", "SyntaxError: invalid syntax")),
    passes_over(wreckage("SyntaxError: Unexpected token '<'")),  # JavaScript's
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
