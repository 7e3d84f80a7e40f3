"""Bind a port by the rule of torch's store, so that we meet what the store will meet."""

from __future__ import annotations

import errno
import socket

from holdfast.analysis.machine import Bind


def try_store_binds(port: int) -> tuple[Bind, ...]:
    """Both tries of the store, in its order; it is content with the first that works.

    torch/csrc/distributed/c10d/socket.cpp: the wildcard address, SO_REUSEADDR, IPv6 as dual
    stack, then IPv4. libuv's server does the same.
    """
    return (
        Bind(family="IPv6", error=_try(socket.AF_INET6, "::", port)),
        Bind(family="IPv4", error=_try(socket.AF_INET, "0.0.0.0", port)),
    )


def _try(family: socket.AddressFamily, wildcard: str, port: int) -> str:
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
        return errno.errorcode.get(problem.errno or 0, str(problem))
    return ""
