"""A program that sits on a port: prints the first free one of a few, and waits to be ended."""

import contextlib
import signal
import socket

for port in range(29600, 29700):
    with contextlib.suppress(OSError):
        server = socket.create_server(("127.0.0.1", port))
        print(port, flush=True)
        signal.pause()
