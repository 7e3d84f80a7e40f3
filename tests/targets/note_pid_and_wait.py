"""A rank that notes its pid in a file and then waits for ever."""

import os
import signal
import sys

descriptor = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
os.write(descriptor, f"{os.getpid()}\n".encode())
signal.pause()
