"""Does the kernel of a machine still answer, when its launcher is gone or silent?

A connection to the port from which its launcher talked to us: nothing listens there, so a machine
that is up refuses it. A firewall may drop it nevertheless: silence only counts where the same
question was answered while all was well.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket

ONE_TRY = 1.2
"""seconds; a first packet that got lost is sent again after one"""
TRIES = 2


async def kernel_answers(address: str, port: int) -> bool:
    for _ in range(TRIES):
        if await _answers(address, port):
            return True
    return False


async def _answers(address: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with contextlib.closing(socket.socket(family, socket.SOCK_STREAM)) as probe:
        probe.setblocking(False)
        try:
            connected = asyncio.get_running_loop().sock_connect(probe, (address, port))
            await asyncio.wait_for(connected, ONE_TRY)
        except asyncio.TimeoutError:
            return False
        except OSError as problem:
            return problem.errno in (errno.ECONNREFUSED, errno.ECONNRESET)
    return True
