from holdfast.catalogue import by_slug
from holdfast.findings import Place, Status
from holdfast.lint.readers import mending, python
from tests.faults.table import flags, leaves, lint_table

EMPTY_LOOP = """\
import torch.distributed as dist

def train(rank):
    dist.init_process_group("gloo")
    for step in range(3):
        # forward, backward, step
    dist.destroy_process_group()
"""
OLD_PRINT = """\
import torch.multiprocessing as mp
print "started"
"""

test_lint = lint_table(
    "script-broken",
    flags(
        "warning",
        mending.read(EMPTY_LOOP, "guide.md", first_line=11),
        lines=[15],
        saying=["IndentationError", "after 'for' statement on line 15", "`pass`"],
    ),
    flags(
        "warning",
        mending.read(OLD_PRINT, "guide.md", first_line=40),
        lines=[41],
        saying=["print", "Python 2"],
    ),
    leaves(mending.read(EMPTY_LOOP.replace("# forward", "..."), "guide.md")),
    leaves(  # cut out of a class
        mending.read("# ours/loop.py\n    def sync(self):\n        dist.barrier()\n", "guide.md")
    ),
    leaves(mending.read("all_reduce(tensor, op=<op>)", "guide.md")),  # a signature, no program
    leaves(mending.read("import json\nfor x in y:\n", "guide.md")),  # none of our business
    leaves(python.read_file("import torch.distributed\n", "train.py")),
)


def test_a_whole_script_may_be_meant_for_another_python() -> None:
    broken = python.read_file("x = 1\nimport torch\ndef f(:\n", "train.py")
    (finding,) = by_slug("script-broken").ask_lint(broken)
    assert finding.status is Status.SKIPPED
    assert finding.place == Place(file="train.py", line=3, column=7)
    assert "refuses it: SyntaxError" in finding.reason
