"""Which DataLoader worker a rank waits for."""

from __future__ import annotations

from holdfast.analysis.collectives import loader_workers, waits
from holdfast.analysis.scene.scene import WorkerStack
from tests.run.scenes import IN_BACKWARD, TORCH, a_rank, a_stack

AROUND = (
    ("_worker_loop", f"{TORCH}/utils/data/_utils/worker.py", 374),
    ("run", "/usr/lib/python3.11/multiprocessing/process.py", 108),
    ("main", "/home/me/train.py", 34),  # of the parent, by fork
)
HUNG = a_stack(
    ("__getitem__", "/home/me/data.py", 31),
    ("fetch", f"{TORCH}/utils/data/_utils/fetch.py", 54),
    *AROUND,
)
IDLE = a_stack(("get", "/usr/lib/python3.11/multiprocessing/queues.py", 113), *AROUND)
OTHER = a_stack(("serve", "/home/me/server.py", 9))
WAITS = a_stack(
    ("_try_get_data", f"{TORCH}/utils/data/dataloader.py", 1240),
    ("__next__", f"{TORCH}/utils/data/dataloader.py", 725),
    ("train", "/home/me/train.py", 36),
)


def test_the_worker_that_fetches_is_named() -> None:
    assert loader_workers.waits_for_a_worker(WAITS)
    assert not loader_workers.waits_for_a_worker(IN_BACKWARD)
    workers = [WorkerStack(pid=70 + n, stack=one) for n, one in enumerate((OTHER, IDLE, HUNG))]
    assert waits.where_is(a_rank(1, stack=WAITS, workers=tuple(workers))) == (
        "in __next__() at train.py:36 (its DataLoader worker (pid 72) is in __getitem__() at "
        "data.py:31)"
    )


def test_idle_workers_are_not() -> None:
    idle = (WorkerStack(pid=70, stack=IDLE), WorkerStack(pid=71, stack=OTHER))
    assert loader_workers.at_work(a_rank(1, stack=WAITS, workers=idle)) == ""
    assert waits.where_is(a_rank(1, stack=WAITS, workers=idle)) == "in __next__() at train.py:36"
