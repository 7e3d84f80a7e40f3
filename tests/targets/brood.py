"""A rank with a child in a process group of its own, both deaf to SIGTERM; notes both pids.

brood.py FILE
"""

import os
import signal
import sys

signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setpgid(0, 0)
descriptor = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
os.write(descriptor, f"{os.getpid()}\n".encode())
while True:
    signal.pause()
