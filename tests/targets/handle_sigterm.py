"""A process that saves on SIGTERM and SIGINT, without torch.

argv: HOW (steps, stuck (in C), handler (its own)), the grace time.
"""

import signal
import sys
import time

from holdfast.checkpoint.sigterm import SigtermGrace

how = sys.argv[1]
if how == "handler":
    signal.signal(signal.SIGTERM, lambda *_: print("mine", flush=True))
both = (signal.SIGTERM, signal.SIGINT)
grace = SigtermGrace(seconds=float(sys.argv[2]), pace=lambda: 0.01, signals=both)
assert grace.open()
print("ready", flush=True)
if how == "stuck":
    time.sleep(60)
until = time.monotonic() + 60
while not grace.received and time.monotonic() < until:
    time.sleep(0.01)
grace.answered()
print(f"saved with {grace.left() > 0}", flush=True)
grace.end()
time.sleep(0.1)
print("still here", flush=True)
