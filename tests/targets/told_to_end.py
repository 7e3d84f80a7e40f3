"""A process with a Grace open, no torch. HOW: steps (answers), stuck (in C), handler (its own)."""

import signal
import sys
import time

from holdfast.checkpoint.sigterm import Grace

how = sys.argv[1]
if how == "handler":
    signal.signal(signal.SIGTERM, lambda *_: print("mine", flush=True))
grace = Grace(seconds=float(sys.argv[2]), pace=lambda: 0.01)
assert grace.open()
print("ready", flush=True)
if how == "stuck":
    time.sleep(60)
until = time.monotonic() + 60
while not grace.told and time.monotonic() < until:
    time.sleep(0.01)
grace.answered()
print(f"saved with {grace.left() > 0}", flush=True)
grace.end()
time.sleep(0.1)
print("still here", flush=True)
