from __future__ import annotations

import msgspec

from holdfast.analysis.source.source import LintingMachine
from tests.analysis.source.made_sources import python
from tests.faults.table import flags, leaves, lint_table

QUEUE = """
import multiprocessing as mp

CONTEXT
tasks = mp.Queue()
MEAN = 0.5

def work():
    while True:
        item = tasks.get()
        print(item * MEAN)

if __name__ == "__main__":
    START
    tasks.put(1)
"""
HIDDEN = """
import torch
import torch.multiprocessing as mp

def work(rank):
    counts[rank] = 1

if __name__ == "__main__":
    counts = torch.zeros(4).share_memory_()
    mp.spawn(work, nprocs=4)
"""
INITIALIZED = """
import multiprocessing as mp

lock = mp.Lock()

def setup(theirs):
    global lock
    lock = theirs

def work(n):
    with lock:
        print(n)

if __name__ == "__main__":
    mp.set_start_method("spawn")
    with mp.Pool(2, initializer=setup, initargs=(lock,)) as pool:
        pool.map(work, range(4))
"""


def queue(start: str, context: str = "") -> str:
    return QUEUE.replace("START", start).replace("CONTEXT", context)


PLAIN = queue("mp.Process(target=work).start()")

SET_LATER = """
import os
import multiprocessing as mp
SCALE = 1
TABLE = {{}}
def work():
    print({1})
def main():
    {0}
    mp.get_context('spawn').Process(target=work).start()
if __name__ == "__main__":
    main()
"""
test_lint = lint_table(
    "module-state-under-spawn",
    flags(
        "error",
        python(SET_LATER.format("global SCALE; SCALE = 3", "SCALE")),
        lines=[6],
        saying=[
            "work() reads `SCALE`",
            "what line 8 set it to",
            "args=(…, SCALE)",
            "has the module's first value there",
        ],
    ),
    flags(
        "error",
        python(SET_LATER.format("TABLE['a'] = 3", "TABLE['a']")),
        lines=[6],
        saying=["`TABLE['a']`"],
    ),
    flags(
        "warning",
        python(SET_LATER.format("TABLE['a'] = 3", "TABLE['a']").replace("'spawn'", "None")),
        lines=[6],
        saying=["unless it is forked"],
    ),
    flags(
        "error",
        python("""
            import torch.multiprocessing as mp
            def work(rank):
                print(options.lr)
            if __name__ == "__main__":
                options = parse()
                mp.spawn(work, nprocs=2)
        """),
        lines=[3],
        saying=["`options`", "NameError"],
    ),
    leaves(python(SET_LATER.format("TABLE['a'] = 3", "TABLE['b']"))),
    leaves(python(SET_LATER.format("TABLE['a'] = 3", "TABLE['a']").replace("'spawn'", "'fork'"))),
    leaves(python(SET_LATER.format("TABLE = {'a': 3}", "TABLE['a']"))),
    leaves(python(SET_LATER.format("global SCALE; SCALE = 1", "SCALE"))),  # as on import
    leaves(python(SET_LATER.format("TABLE['a'] = 3", "fill(TABLE), TABLE['a']"))),
    leaves(python(SET_LATER.format("os.environ['a'] = '3'", "os.environ['a']"))),
    flags(
        "warning",
        python(PLAIN),
        lines=[4],
        saying=["work() uses the module's `tasks`", "3.14", "args=(…, tasks)", "'fork'"],
        not_saying=["MEAN"],
    ),
    flags(
        "error",
        msgspec.structs.replace(python(PLAIN), here=LintingMachine(python="3.14.1")),
        lines=[4],
        saying=["forkserver, the default"],
    ),
    flags(
        "error",
        python(queue("ctx.Process(target=work).start()", "ctx = mp.get_context('forkserver')")),
        lines=[4],
        saying=["started by forkserver", "its own Queue"],
    ),
    flags(
        "error",
        python(queue("mp.set_start_method('spawn'); mp.Process(target=work).start()")),
        lines=[4],
        saying=["started by spawn"],
    ),
    flags("error", python(HIDDEN), lines=[8], saying=["NameError", "mp.spawn(work, args="]),
    leaves(python(queue("mp.get_context('fork').Process(target=work).start()"))),
    leaves(
        python(
            queue("mp.Process(target=work, args=(tasks,)).start()").replace("work()", "work(tasks)")
        )
    ),
    leaves(python(INITIALIZED)),
    leaves(python(PLAIN.replace("mp.Queue()", "make_queue()"))),
    leaves(python(PLAIN.replace("tasks = mp.Queue()", "import queue; tasks = queue.Queue()"))),
    leaves(python(queue("mp.set_start_method(args.method); mp.Process(target=work).start()"))),
)
