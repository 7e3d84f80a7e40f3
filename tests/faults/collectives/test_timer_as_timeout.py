from __future__ import annotations

from tests.analysis.source.made_sources import python
from tests.faults.table import flags, leaves, lint_table

test_lint = lint_table(
    "timer-as-timeout",
    flags(
        "warning",
        python("""
            from threading import Timer
            import torch
            def late():
                print("the forward pass timed out")
            guard = Timer(60, late)
            guard.start()
            model(batch)
            guard.cancel()
        """),
        lines=[5],
        saying=["only prints that time is up", "holdfast.deadline", "interrupts nothing"],
    ),
    flags(
        "warning",
        python("""
            import logging, threading
            import torch.distributed as dist
            class Guard:
                def on_timeout(self):
                    logging.error("rank %d is stuck", self.rank)
                    self.fired = True
                def __enter__(self):
                    self.timer = threading.Timer(self.seconds, self.on_timeout)
                    self.timer.start()
        """),
        lines=[8],
        saying=["what it guards continues"],
    ),
    flags(
        "warning",
        python("""
            import threading
            import torch.distributed as dist
            class Alarm(threading.Timer):
                daemon = True
            Alarm(5, lambda: print(f"rank {rank}: timeout!")).start()
        """),
        lines=[5],
        saying=["GIL"],
    ),
    flags(
        "error",
        python("""
            import sys
            import threading
            import torch.distributed as dist
            def late():
                raise TimeoutError("barrier took too long")
            threading.Timer(30, late).start()
            threading.Timer(interval=30, function=sys.exit).start()
            threading.Timer(30, lambda: sys.exit(1)).start()
        """),
        lines=[6, 7, 8],
        saying=["ends only the Timer's own thread"],
    ),
    flags(
        "note",
        python("""
            import _thread, threading
            import torch.distributed as dist
            threading.Timer(30, _thread.interrupt_main).start()
        """),
        lines=[3],
        saying=["does not end a blocked collective"],
    ),
    leaves(  # these do end something
        python("""
            import faulthandler, os, threading
            import torch.distributed as dist
            def late():
                print("timed out")
                faulthandler.dump_traceback()
                os._exit(1)
            threading.Timer(30, late).start()
            threading.Timer(30, process.kill).start()
            threading.Timer(30, lambda: os.abort()).start()
        """)
    ),
    leaves(  # the flag is read; no timeout is claimed; it is repeated
        python("""
            import threading, torch
            stop = threading.Event()
            threading.Timer(3600, stop.set).start()
            def flag():
                global timed_out
                timed_out = True
            threading.Timer(3600, flag).start()
            while not (stop.is_set() or timed_out):
                step()
            def patience():
                print("still loading the data set")
            threading.Timer(60, patience).start()
            def report():
                print("timeout in", left)
                threading.Timer(60, report).start()
            report()
        """)
    ),
    leaves(  # not about training
        python("""
            import threading
            threading.Timer(5, lambda: print("timeout")).start()
        """)
    ),
)
