"""Before Python is taken apart: Gloo's threads are let finish what they hold.

A worker of ProcessGroupGloo gives up a collective's tensors after it has woken the script. Where
Python is being finalized by then, taking the GIL for that ends the thread, inside a C++ destructor:
`terminate called without an active exception`, SIGABRT, on a rank whose work is done. Seen with
torch alone on a busy machine, once in some hundred jobs, with and without destroy_process_group.
tests/rank/test_gloo_threads.py makes it come in one exit of ten.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

LIMIT = 1.0
"""seconds: a thread that is at work for longer is not at the end of a collective"""
LOOK_EVERY = 0.001


def wait_until_idle() -> None:
    """The looks sleep, so a thread that waits for the GIL gets it meanwhile."""
    until = time.monotonic() + LIMIT
    calm = 0
    while calm < 2 and time.monotonic() < until:
        calm = 0 if "R" in _states() else calm + 1
        time.sleep(LOOK_EVERY)


def _states() -> list[str]:
    with open("/proc/self/comm", errors="replace") as file:
        own = file.read().rstrip("\n")
    found = list(_native_threads())
    gloo = [state for name, state in found if "gloo" in name]
    # Up to torch 2.10 they have no name of their own. NCCL's have one, and may spin for good.
    return gloo or [state for name, state in found if name == own]


def _native_threads() -> Iterator[tuple[str, str]]:
    """Name and state of every thread that is not Python's."""
    pythons = {thread.native_id for thread in threading.enumerate()}
    for task in os.listdir("/proc/self/task"):
        if int(task) in pythons:
            continue
        try:
            with open(f"/proc/self/task/{task}/stat", errors="replace") as file:
                text = file.read()
        except OSError:  # it has just ended
            continue
        name, _, rest = text.partition("(")[2].rpartition(")")
        yield name, rest.split()[0]
