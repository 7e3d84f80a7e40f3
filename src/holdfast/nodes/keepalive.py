"""How a connection learns that the other machine is gone: lost power, a cut cable, a dropped route.

Nothing is sent in those cases, and by default the kernel would wait for hours. With keepalive its
own kernel asks the other one every second, whose kernel answers even while the process there is
busy or stopped: silence is about the machine or the path, never about the program.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket

GONE_SECONDS = 15
"""at 30 % loss each way half of the answers come back: all fail once in six thousand times"""
IDLE_SECONDS = 2
TCP_THIN_LINEAR_TIMEOUTS = 16
"""of linux/tcp.h: what got lost is sent again every 0.2 s, six times, before the pauses double. So
it is sent twelve times in 15 s; with seven, at 30 % loss, one packet in a hundred is given up."""


def notice_loss(writer: asyncio.StreamWriter) -> None:
    """For a TCP connection; it then fails with ETIMEDOUT when the peer is not heard for so long."""
    connection: socket.socket = writer.get_extra_info("socket")
    probes = max(1, GONE_SECONDS - IDLE_SECONDS)
    for level, option, value in (
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, IDLE_SECONDS),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, probes),
        # while data is on its way no probes are sent, and this counts instead
        (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, GONE_SECONDS * 1000),
        (socket.IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 1),
    ):
        with contextlib.suppress(OSError):  # a kernel that lacks one (gVisor) does without it
            connection.setsockopt(level, option, value)
