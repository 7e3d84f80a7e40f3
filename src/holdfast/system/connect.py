"""One TCP connect with a deadline."""

from __future__ import annotations

import errno
import ipaddress
import socket
import time

from holdfast.analysis.machine import Reach


def connect(address: str, port: int, *, seconds: float) -> Reach:
    """Connect to a numeric address and hang up again; nothing is sent."""
    start = time.monotonic()
    error = ""
    try:
        with socket.socket(family_of(address), socket.SOCK_STREAM) as client:
            client.settimeout(seconds)
            client.connect((address, port))
    except OSError as problem:
        error = error_name(problem)
    return Reach(address=address, port=port, error=error, seconds=time.monotonic() - start)


def family_of(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ipaddress.ip_address(address).version == 6 else socket.AF_INET


def error_name(problem: OSError) -> str:
    """The errno's name; our own deadline is told like the kernel's: nothing came back."""
    if isinstance(problem, TimeoutError):
        return "ETIMEDOUT"
    return errno.errorcode.get(problem.errno or 0, str(problem))
