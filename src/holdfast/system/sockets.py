"""Trying a port: a bind by the rule of torch's store, and a connect with a deadline."""

from __future__ import annotations

import errno
import ipaddress
import socket
import time

from holdfast.analysis.machine import Bind, Reach


def try_store_binds(port: int) -> tuple[Bind, ...]:
    """Both tries of the store, in its order; it is content with the first that works.

    torch/csrc/distributed/c10d/socket.cpp: the wildcard address, SO_REUSEADDR, IPv6 as dual
    stack, then IPv4. libuv's server does the same.
    """
    return (
        Bind(family="IPv6", error=_try_bind(socket.AF_INET6, "::", port)),
        Bind(family="IPv4", error=_try_bind(socket.AF_INET, "0.0.0.0", port)),
    )


def _try_bind(family: socket.AddressFamily, wildcard: str, port: int) -> str:
    """The errno's name, '' when it worked.

    The socket never listens: a check must not accept strangers, not even for a moment.
    """
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            probe.bind((wildcard, port))
    except OSError as problem:
        return error_name(problem)
    return ""


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


def is_this_machine(host: str) -> bool:
    """Whether this name or address is one of ours: the kernel lets only those be bound."""
    if host in ("", "localhost"):
        return True
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # an unknown name
        return False
    return any(_is_ours(family, address) for family, _, _, _, address in found)


def _is_ours(family: int, address: tuple[object, ...]) -> bool:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind(address)
    except OSError:
        return False
    return True


def family_of(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ipaddress.ip_address(address).version == 6 else socket.AF_INET


def error_name(problem: OSError) -> str:
    """The errno's name; our own deadline is reported like the kernel's: nothing came back."""
    if isinstance(problem, TimeoutError):
        return "ETIMEDOUT"
    return errno.errorcode.get(problem.errno or 0, str(problem))
