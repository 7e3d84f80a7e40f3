from __future__ import annotations

from tests.analysis.source.made_sources import python
from tests.faults.table import flags, leaves, lint_table

GUARDED = """
import threading
import multiprocessing as mp
import torch

guard = threading.RLock()
total = torch.zeros(1).share_memory_()

def add(n, total):
    for _ in range(n):
        with guard:
            total[0] += 1

if __name__ == "__main__":
    ps = [mp.Process(target=add, args=(100, total)) for _ in range(8)]
    [p.start() for p in ps]
"""
PASSED = """
from threading import Lock
from torch import multiprocessing

def save(rank, lock, path):
    with lock:
        open(path, "a").write(str(rank))

def main():
    lock = Lock()
    multiprocessing.spawn(save, args=(lock, "log"), nprocs=2)
"""
STOP = """
import threading, multiprocessing

stop = threading.Event()

def serve():
    while not stop.is_set():
        pass

def main():
    p = multiprocessing.Process(target=serve)
    p.start()
    stop.set()
"""
RACE = """
import torch
import torch.multiprocessing as mp

def work(rank, hits, lock):
    BODY

if __name__ == "__main__":
    hits = torch.zeros(4).share_memory_()
    lock = mp.Lock()
    for rank in range(4):
        mp.Process(target=work, args=(rank, hits, lock)).start()
"""


def race(body: str) -> str:
    return RACE.replace("BODY", body)


VALUE = """
from multiprocessing import Process, Value

def work(counter):
    counter.value += 1

if __name__ == "__main__":
    counter = Value("i", 0)
    for _ in range(4):
        Process(target=work, args=(counter,)).start()
"""
SPAWNED = """
import torch
import torch.multiprocessing as mp

def work(rank, hits):
    hits += 1

def main():
    hits = torch.zeros(1)
    mp.spawn(work, nprocs=4, args=(hits,))
"""

test_lint = lint_table(
    "thread-lock-across-processes",
    flags(
        "error",
        python(GUARDED),
        lines=[5],
        saying=["threading.RLock", "add() runs in child processes", "multiprocessing.RLock()"],
    ),
    flags("error", python(PASSED), lines=[9], saying=["raises TypeError", "cannot be pickled"]),
    flags("error", python(STOP), lines=[3], saying=["has no effect in another"]),
    flags(
        "warning",
        python(
            PASSED.replace("multiprocessing.spawn(save, args=(lock, 'log'), nprocs=2)", "").replace(
                'multiprocessing.spawn(save, args=(lock, "log"), nprocs=2)',
                'multiprocessing.Process(target=save, args=(0, lock, "log")).start()',
            )
        ),
        lines=[9],
        saying=["excludes no other process"],
    ),
    flags(
        "warning",
        python(race("hits[0] += 1")),
        lines=[5],
        saying=["there will be no error", "with lock: hits[0] += 1"],
    ),
    flags("warning", python(race("hits.add_(1)")), lines=[5], saying=["hits.add_(1)"]),
    flags("warning", python(race("hits[0] = hits[0] + 1")), lines=[5], saying=["data race"]),
    flags("warning", python(VALUE), lines=[4], saying=["counter.get_lock()"]),
    flags("warning", python(SPAWNED), lines=[5], saying=["several processes"]),
    leaves(python(race("with lock: hits[0] += 1"))),
    leaves(python(race("lock.acquire(); hits[0] += 1; lock.release()"))),
    leaves(python(race("hits[rank] += 1"))),
    leaves(python(race("hits[rank * 2] += 1"))),
    leaves(python(race("hits[0] = 1"))),
    leaves(
        python(race("hits[0] += 1").replace("    for rank in range(4):\n    ", "    rank = 0\n"))
    ),
    leaves(
        python(VALUE.replace("counter.value += 1", "with counter.get_lock(): counter.value += 1"))
    ),
    leaves(python(VALUE.replace("counter.value += 1", "counter.value = 1"))),
    leaves(python(GUARDED.replace("threading.RLock", "mp.RLock"))),
    leaves(  # threads of one process use it
        python(GUARDED + "    threading.Thread(target=print).start()\n")
    ),
    leaves(  # made in the child: for its own threads
        python(
            PASSED.replace("    with lock:", "    lock = Lock()\n    with lock:").replace(
                "(lock, ", "(None, "
            )
        )
    ),
    leaves(
        python(
            "import threading\nlock = threading.Lock()\ndef f():\n    with lock:\n        pass\n"
        )
    ),
    flags(
        "error",
        python(
            """
            import multiprocessing as mp, threading
            def work(lock):
                with lock: pass
            def main():
                lock = threading.Lock()
                with mp.Pool(4) as pool:
                    pool.apply_async(work, args=(lock,))
            """
        ),
        lines=[5],
        saying=["passed to a pool", "initializer="],
    ),
    leaves(  # each process has its own, and its own handler sets it
        python("import signal\n" + STOP + "signal.signal(15, lambda *_: stop.set())\n")
    ),
    leaves(python(STOP.replace("    stop.set()\n", ""))),
)
