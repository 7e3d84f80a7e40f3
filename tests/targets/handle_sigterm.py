"""A process that saves on SIGTERM and SIGINT, without torch.

argv: HOW (steps, stuck (in C), alone (stuck, and a peer is gone), evaluates (in C, for a while),
handler (its own)), the grace time.
"""

import signal
import sys
import time

from holdfast.checkpoint.sigterm import SigtermGrace

how = sys.argv[1]
if how == "handler":
    signal.signal(signal.SIGTERM, lambda *_: print("mine", flush=True))
both = (signal.SIGTERM, signal.SIGINT)
missing = "rank 1 has exited" if how == "alone" else ""
grace = SigtermGrace(seconds=float(sys.argv[2]), signals=both, missing_peer=lambda: missing)
assert grace.open()
print("ready", flush=True)
if how in ("stuck", "alone", "evaluates"):
    time.sleep(2.5 if how == "evaluates" else 60)
until = time.monotonic() + 60
while not grace.received and time.monotonic() < until:
    time.sleep(0.01)
grace.answered()
print(f"saved with {grace.left() > 0}", flush=True)
grace.end()
time.sleep(0.1)
print("still here", flush=True)
