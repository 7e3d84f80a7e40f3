"""What torch, Python and launchers print when a port cannot be bound."""

from __future__ import annotations

import functools

from holdfast.analysis.logs.pattern import LogPattern, Role
from holdfast.analysis.logs.wreckage import Wreckage

_pattern = functools.partial(LogPattern, slug="port-in-use")

_TAKEN = (
    r"EADDRINUSE|[Aa]ddress already in use|errno: (?:98|48|10048)\b|Only one usage of each socket"
)
LISTEN = _pattern(
    name="port-in-use: listen",
    pattern=r"server socket has failed to (?:listen on any local network address|bind\.)"
    rf"(?:.*?\bport: (?P<port>\d+))?.*(?:{_TAKEN})",
    anchors=("server socket has failed to",),
    example="torch.distributed.DistNetworkError: The server socket has failed to listen on any "
    "local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: "
    "address already in use",
)
BIND = _pattern(
    name="port-in-use: bind",
    pattern=rf"server socket has failed to bind to \S+?:(?P<port>\d+) .*(?:{_TAKEN})",
    anchors=("server socket has failed to bind to",),
    example="[W socket.cpp:426] [c10d] The server socket has failed to bind to [::]:29500 (errno: "
    "98 - Address already in use).",
    # torchrun's c10d tries to host, and joins as a client where another agent hosts already
    role=Role.CONTEXT,
)
TAKEN = _pattern(
    name="port-in-use: taken",
    pattern=r"(?:RuntimeError|OSError|ZMQError|socket\.error|DistNetworkError|std::system_error|bind\b[^:]*?)"
    r" ?: ?(?:\[Errno (?:98|48)\] )?(?:error while attempting to bind on address "
    r"\('[^']*', (?P<port>\d+)\): )?[Aa]ddress already in use"
    # The number is the same in every language.
    r"|OSError: \[Errno 98\] ",
    anchors=("ddress already in use", "OSError: [Errno 98] "),
    example="RuntimeError: Address already in use",
)
CUT = _pattern(
    name="port-in-use: cut",
    # The reason follows on the same line, where the line is whole.
    pattern=r"server socket has failed to listen on any local network address\.?\s*$",
    anchors=("server socket has failed to listen",),
    example="[E socket.cpp:435] [c10d] The server socket has failed to listen on any local network "
    "address.",
    role=Role.CONTEXT,
)
ACCELERATE = _pattern(
    name="port-in-use: accelerate",
    pattern=r"launch distributed communication on port `?(?P<port>\d+)`?, "
    r"but another process is utilizing",
    anchors=("but another process is utilizing it",),
    example="ConnectionError: Tried to launch distributed communication on port `29500`, but "
    "another process is utilizing it. Please specify a different port",
)
ALL = (LISTEN, BIND, TAKEN, CUT, ACCELERATE)


def taken_port(wreckage: Wreckage) -> int | None:
    """The number of the port that could not be bound, where a line gives it."""
    seen = wreckage.seen(LISTEN, BIND, TAKEN, ACCELERATE)
    ports = (one.fields["port"] for one in seen if "port" in one.fields)
    return next((int(port) for port in ports if len(port) < 6), None)
