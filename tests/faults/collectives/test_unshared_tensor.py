from __future__ import annotations

import msgspec

from holdfast.analysis.source.source import LintingMachine, Source
from tests.analysis.source.made_sources import python
from tests.faults.table import flags, leaves, lint_table


def on(version: str, source: Source) -> Source:
    return msgspec.structs.replace(source, here=LintingMachine(python=version))


PASSED = """
import torch
import torch.multiprocessing as mp

def fill(rows, where):
    rows[where] = torch.ones(4)

def main():
    rows = torch.zeros(8, 4)
    jobs = [mp.Process(target=fill, args=(rows, n)) for n in range(8)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    print(rows.sum())

if __name__ == "__main__":
    main()
"""
SUBCLASS = """
from multiprocessing import Process
from torch import zeros

class Counter(Process):
    def __init__(self, total, name):
        super().__init__(name=name)
        self.total = total

    def run(self):
        self.total.add_(1)

total = zeros(1)
if __name__ == "__main__":
    for name in "ab":
        Counter(total, name=name).start()
    assert total.item() == 2
"""
GLOBAL = """
import torch, multiprocessing

hits = torch.zeros(1)

def count():
    bump(hits)

def bump(tensor):
    tensor[0] += 1

if __name__ == "__main__":
    ctx = multiprocessing.get_context("METHOD")
    ctx.Process(target=count).start()
    print(hits)
"""
HOGWILD = """
import torch.nn as nn
import torch.optim
import torch.multiprocessing as mp

class Net(nn.Module):
    pass

def train(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.step()

if __name__ == "__main__":
    net = Net()
    SHARE
    workers = []
    for _ in range(4):
        p = mp.Process(target=train, kwargs={"model": net})
        p.start()
        workers.append(p)
    test(net)
"""
RESULTS = """
import multiprocessing as mp

results = []

def work(n):
    results.append(n * n)

if __name__ == "__main__":
    with mp.Pool(4) as pool:
        pool.map(work, range(10))
    print(results)
"""
ARRAY = """
import numpy as np
from torch.multiprocessing import spawn

def work(rank, out):
    out[rank] += rank

def main():
    out = np.zeros(4)
    spawn(work, args=(out,), nprocs=4)
    print(out)
"""

STATIC = """
import torch
from multiprocessing import get_context
class Work:
    @staticmethod
    def add(into):
        into.add_(1)
def main():
    sums = torch.zeros(3)
    job = get_context("fork").Process(target=Work.add, kwargs={"into": sums})
    job.start()
    job.join()
    print(sums)
"""
test_lint = lint_table(
    "unshared-tensor",
    flags("error", python(STATIC), lines=[8], saying=["`sums`", "add()"]),
    flags(
        "error",
        python(PASSED),
        lines=[8],
        saying=["`rows`", "fill()", "rows.share_memory_()", "before Python 3.14", "spawn"],
    ),
    flags("error", python(SUBCLASS), lines=[12], saying=["`total`", "there is no error"]),
    flags(
        "error",
        python(SUBCLASS.replace("self.total = total", "self.total, self.said = total, name")),
        lines=[12],
        saying=["`total`"],
    ),
    flags(
        "error", python(GLOBAL.replace("METHOD", "fork")), lines=[3], saying=["own copy", "`hits`"]
    ),
    flags(
        "error",
        python(GLOBAL.replace("METHOD", "spawn")),
        lines=[3],
        saying=["create their own `hits` when they import this file"],
    ),
    flags(
        "error",
        python(HOGWILD.replace("SHARE", "net.eval()")),
        lines=[13],
        saying=["net.share_memory()"],
    ),
    flags("warning", python(RESULTS), lines=[3], saying=["plain list", "Queue", "Manager().list"]),
    flags("warning", python(ARRAY), lines=[8], saying=["NumPy array"]),
    leaves(python(PASSED.replace("zeros(8, 4)", "zeros(8, 4).share_memory_()"))),
    leaves(python(PASSED.replace("    jobs =", "    rows.share_memory_()\n    jobs ="))),
    leaves(
        python(PASSED.replace("import torch.m", "import torch.m").replace("print(rows.sum())", ""))
    ),
    leaves(on("3.14.0", python(PASSED))),  # forkserver: what is passed is shared
    leaves(python(PASSED.replace("def main():", "def main():\n    mp.set_start_method('spawn')"))),
    leaves(python(PASSED.replace("torch.zeros(8, 4)", "torch.zeros(8, 4, device=device)"))),
    leaves(python(PASSED.replace("torch.zeros(8, 4)", "load_rows()"))),
    leaves(python(HOGWILD.replace("SHARE", "net.share_memory()"))),
    leaves(python(RESULTS.replace("= []", "= mp.Manager().list()"))),
    leaves(python(RESULTS.replace("results.append(n * n)", "results = []; results.append(n)"))),
    leaves(python(RESULTS.replace("mp.Pool(4)", "mp.pool.ThreadPool(4)"))),
    leaves(
        python(
            RESULTS.replace("import multiprocessing as mp", "import multiprocessing.dummy as mp")
        )
    ),
    leaves(python(ARRAY.replace("np.zeros(4)", "[torch.zeros(1).share_memory_()]"))),
    leaves(  # the parent fills it itself, from a queue
        python(PASSED.replace("rows[where] = torch.ones(4)", "queue.put(rows[where])"))
    ),
    leaves(  # a pool pickles what it is handed, and torch shares what is pickled
        python(
            PASSED.replace(
                "[mp.Process(target=fill, args=(rows, n)) for n in range(8)]", "[]"
            ).replace(
                "    for job in jobs:\n        job.start()", "    mp.Pool(2).apply(fill, (rows, 1))"
            )
        )
    ),
    leaves(  # what the parent shows comes from the child by another way
        python(
            HOGWILD.replace("SHARE", "pass").replace(
                "test(net)", "net.load_state_dict(q.get()); test(net)"
            )
        )
    ),
)
