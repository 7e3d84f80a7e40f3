"""A rank that imports nothing: appends `seconds rank attempt port pid` to one file for all of them,
five times a second. Seconds are of the monotonic clock, which lab hosts share; the port is that of
the round's store, so it tells two rounds apart that have the same attempt number."""

import os
import sys
import time

WHO = "{RANK} {TORCHELASTIC_RESTART_COUNT} {MASTER_PORT}".format(**os.environ)
FILE = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
while True:
    os.write(FILE, f"{time.monotonic():.3f} {WHO} {os.getpid()}\n".encode())
    time.sleep(0.2)
