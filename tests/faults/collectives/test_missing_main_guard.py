import msgspec

from holdfast.analysis.source.source import LintingMachine
from tests.analysis.logs.patterns.made import wreckage
from tests.analysis.source.made_sources import python
from tests.faults.table import explain_table, flags, leaves, lint_table, passes_over, recognises

NEW = LintingMachine(python="3.14.0")

REFUSED = (
    "RuntimeError: ",
    "        An attempt has been made to start a new process before the",
    "        current process has finished its bootstrapping phase.",
)
CHILD = (
    '  File "<string>", line 1, in <module>',
    '  File "/usr/lib/python3.11/multiprocessing/spawn.py", line 122, in spawn_main',
    '  File "/usr/lib/python3.11/multiprocessing/spawn.py", line 297, in _fixup_main_from_path',
    '  File "<frozen runpy>", line 88, in _run_code',
    '  File "/home/me/train.py", line 41, in <module>',
    '  File "/home/me/pool.py", line 7, in <module>',
)

test_explain = explain_table(
    "missing-main-guard",
    recognises(
        wreckage(*CHILD, *REFUSED),
        sure=0.96,
        what="train.py line 41",
        saying=["train.py starts processes at its top level", "__main__"],
    ),
    recognises(  # the parent's start is cut away; the frame above the refusal is the script's
        wreckage('ials/dqn.py", line 568, in <module>', *REFUSED[1:]),
        sure=0.96,
        what="dqn.py line 568",
        saying=["dqn.py"],
    ),
    recognises(  # nothing but one line of the message
        wreckage('        The "freeze_support()" line can be omitted if the program'),
        sure=0.96,
        saying=["the script starts processes"],
    ),
    recognises(  # a child in the middle of the script, however that ended
        wreckage(*CHILD), sure=0.75, what="train.py line 41", saying=["started its work again"]
    ),
    passes_over(  # an honest import that failed
        wreckage(
            "Traceback (most recent call last):",
            *CHILD,
            "ModuleNotFoundError: No module named 'torch'",
        )
    ),
    passes_over(wreckage(*CHILD[:2], "EOFError: Ran out of input")),
    passes_over(wreckage('  File "/home/me/train.py", line 41, in <module>', "    main()")),
)

SPAWN = """
import torch.multiprocessing as mp

def work(rank):
    print(rank)

def launch(n):
    mp.spawn(work, nprocs=n)

CALL
"""


def calling(call: str) -> str:
    return SPAWN.replace("CALL", call)


POOL = """
from multiprocessing import Pool, set_start_method, Process

def work(n):
    return n

START
"""


def starting(start: str) -> str:
    return POOL.replace("START", start)


LOADER = """
import multiprocessing
from torch.utils.data import DataLoader
workers = 4
loader = DataLoader(data, num_workers=workersCONTEXT)
for epoch in range(2):
    for batch in loader:
        step(batch)
"""

test_lint = lint_table(
    "missing-main-guard",
    flags("error", python(calling("launch(4)")), lines=[9], saying=["`launch(4)`", "mp.spawn()"]),
    flags(
        "error",
        python(calling("mp.spawn(work,\n    nprocs=2)")),
        lines=[9],
        saying=["mp.spawn() runs when this file is imported", "bootstrapping"],
    ),
    flags(
        "error",
        python(calling("ctx = mp.get_context('spawn')\np = ctx.Process(target=work)\np.start()")),
        lines=[11],
        saying=["p.start()"],
    ),
    flags(
        "error",
        msgspec.structs.replace(python(starting("Pool(2).map(work, [1])")), here=NEW),
        lines=[6],
        saying=["since 3.14"],
    ),
    flags("note", python(starting("Pool(2).map(work, [1])")), lines=[6], saying=["forked"]),
    flags(
        "note",
        python(
            starting(
                "ps = [Process(target=work, args=(i,)) for i in range(2)]\nfor p in ps:\n"
                "    p.start()"
            )
        ),
        lines=[8],
        saying=["p.start()"],
    ),
    flags(
        "error",
        python(
            starting(
                'set_start_method("spawn")\nif __name__ == "__main__":\n    Pool(2)\n'
                "    Process(target=work).start()"
            )
        ),
        lines=[6],
        saying=["context has already been set", "get_context('spawn')"],
    ),
    flags(
        "error",
        python(LOADER.replace("CONTEXT", ", multiprocessing_context='spawn'")),
        lines=[6],
        saying=["DataLoader with 4 workers"],
    ),
    flags("note", python(LOADER.replace("CONTEXT", "")), lines=[6], saying=["DataLoader"]),
    leaves(python(LOADER.replace("workersCONTEXT", "0"))),
    leaves(python(LOADER.replace("workersCONTEXT", "args.workers"))),
    leaves(python(calling('if __name__ == "__main__":\n    launch(4)'))),
    leaves(python(calling("if mp.parent_process() is None:\n    launch(4)"))),
    leaves(python(calling("def main():\n    launch(4)"))),
    leaves(python(calling("launch(4)"), file="pkg/__main__.py")),
    leaves(python(calling("launch = 4"))),
    leaves(
        python("import torch.multiprocessing as mp\nmp.spawn(work, nprocs=2)\n", complete=False)
    ),
    leaves(
        python(
            starting(
                'try:\n    set_start_method("spawn")\nexcept RuntimeError:\n    pass\n'
                'if __name__ == "__main__":\n    Process(target=work).start()'
            )
        )
    ),
    leaves(
        python(
            starting(
                'set_start_method("spawn", force=True)\nif __name__ == "__main__":\n'
                "    Process(target=work).start()"
            )
        )
    ),
    leaves(
        python(starting("from multiprocessing import get_context\nget_context('fork').Pool(2)"))
    ),
    leaves(python("import threading\nt = threading.Thread(target=print)\nt.start()\n")),
)
