from __future__ import annotations

from tests.analysis.source.made_sources import python
from tests.faults.table import flags, leaves, lint_table

test_lint = lint_table(
    "heartbeat-in-band",
    flags(
        "warning",
        python("""
            import time
            import torch.distributed as dist
            def keep_alive(rank, world):
                while True:
                    dist.barrier()
                    time.sleep(10)
        """),
        lines=[5],
        saying=["dist.barrier on the default group", "store", "holdfast run"],
    ),
    flags(  # the thread of a class, one call deep
        "error",
        python("""
            import threading, time
            import torch.distributed as dist
            class Pulse(threading.Thread):
                def beat(self):
                    dist.all_reduce(self.ones)
                def run(self):
                    while not self.stopped:
                        self.beat()
                        time.sleep(1)
            loss.backward()
        """),
        lines=[8],
        saying=["dist.all_reduce (in beat)", "while another thread trains"],
    ),
    flags(
        "error",
        python("""
            from threading import Event, Thread
            import torch.distributed as dist
            over = Event()
            def watch():
                while not over.is_set():
                    dist.all_gather_object(seen, rank)
                    over.wait(5)
            Thread(target=watch, daemon=True).start()
            for batch in loader:
                dist.all_reduce(step(batch))
        """),
        lines=[6],
        saying=["same order on every rank"],
    ),
    flags(
        "warning",
        python("""
            import time
            import torch.distributed as dist
            while True:
                dist.send(one, dst=0)
                print("ping sent")
                time.sleep(1)
        """),
        lines=[4],
        saying=["on the default group repeatedly"],
    ),
    leaves(  # a group of its own; a loop that trains; one that serves; one that ends
        python("""
            import time, threading
            import torch.distributed as dist
            pulse = dist.new_group(backend="gloo")
            def heartbeat():
                while True:
                    dist.all_reduce(one, group=pulse)
                    time.sleep(1)
            threading.Thread(target=heartbeat).start()
            def train():
                while True:
                    loss = model(next(batches))
                    loss.backward()
                    dist.all_reduce(loss)
                    heartbeat_file.touch()
                    time.sleep(0)
            def serve():
                while True:
                    dist.recv(request, src=0)
                    answer(request)
            def ping():
                for _ in range(3):
                    dist.barrier()
                    time.sleep(1)
        """)
    ),
    leaves(  # out of band
        python("""
            import time
            import torch.distributed as dist
            def heartbeat(store, rank):
                while True:
                    store.set(f"beat/{rank}", str(time.time()))
                    time.sleep(1)
        """)
    ),
)
