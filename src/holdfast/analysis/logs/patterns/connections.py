"""Connections that did not come about, as torch's store, Gloo, NCCL, MPI and ssh report it.

All of them report on the calling side. What helps is the address and how the call ended:
refused (the machine answered, nothing listens), silent (nothing came back), no way (no route, or a
firewall that says so). NCCL before 2.24 hides the first two behind 'Software caused connection
abort'.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import NamedTuple

from holdfast.analysis.logs.pattern import LogPattern, Role
from holdfast.analysis.logs.patterns import watchdog
from holdfast.analysis.logs.wreckage import Sighting, Wreckage

REFUSED = "refused"
SILENT = "silent"
NO_WAY = "no way"
MASKED = "masked"

STORE = "store"
GLOO = "gloo"
NCCL = "nccl"
MPI = "mpi"
SSH = "ssh"

_KINDS = {
    "Connection ref": REFUSED,
    "Connection reset": REFUSED,
    "Connection tim": SILENT,
    "Operation timed": SILENT,
    "No route": NO_WAY,
    "Network is unr": NO_WAY,
    "Host is d": NO_WAY,
    "Software caused": MASKED,
}
"""the beginnings of what the system says: reports often quote a line that is cut"""
_ERRORS = rf"(?:{'|'.join(_KINDS)})[\w ]*"
_ERRNOS = {
    "111": REFUSED,
    "104": REFUSED,
    "110": SILENT,
    "113": NO_WAY,
    "112": NO_WAY,
    # Windows, which says the words in its own language
    "10061": REFUSED,
    "10060": SILENT,
    "10065": NO_WAY,
}
"""what c10d prints beside the words; 101 is missing on purpose: without an IPv6 route it says so
once and continues over IPv4"""

_way = functools.partial(LogPattern, role=Role.CASCADE, slug="peer-unreachable")

NCCL_CONNECT = _way(
    name="ways: nccl",
    pattern=r"[Cc]onnect to (?P<address>[^\s<]+)(?:<(?P<port>\d*)[^>]*>)? "
    rf"(?:failed ?: ?|failed with error |returned (?:\d+\()?)(?P<why>{_ERRORS})",
    anchors=tuple(_KINDS),
    example="node-a:411:498 [0] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to "
    "192.0.2.7<43210> failed : Software caused connection abort",
)
NCCL_CALL = _way(
    name="ways: nccl-call",
    # The second spelling is of NCCL 2.24 and 2.25.
    pattern=r"(?:Call to|Connect:) connect(?: to (?P<address>[^\s<]+)<(?P<port>\d+)>)? "
    rf"(?:returned|failed|timeout|timed out) ?:? ?(?P<why>{_ERRORS})?",
    anchors=("Call to connect", "Connect: connect returned"),
    example="node-a:411:498 [0] NCCL INFO Call to connect returned Connection refused, retrying",
)
NCCL_GAVE_UP = _way(
    name="ways: nccl-gave-up",
    pattern=r"Connect: exceeded (?P<clock>retries|timeouts)",
    anchors=("Connect: exceeded ",),
    example="node-a:411:498 [0] misc/socket.cc:516 NCCL WARN socketPollConnect: exceeded retries "
    "(20000)",
)
NCCL_POLL = _way(
    name="ways: nccl-poll",
    # the look at a socket whose connect had failed, in NCCL 2.15 to 2.23
    pattern=r"socket\.cc:\d+ -> \d \((?P<clock>Operation now in progress)\)",
    anchors=("(Operation now in progress)",),
    example="node-a:411:498 [0] NCCL INFO misc/socket.cc:504 -> 2 (Operation now in progress)",
)
GLOO_CONNECT = _way(
    name="ways: gloo",
    pattern=r"(?:local=\[?(?P<local>[^\]\s,]{1,64})[\]\s,].{0,200}?)?"
    rf"(?:SO_ERROR|connect|socket): (?P<why>{_ERRORS}), "
    r"remote=\[?(?P<address>[^\]\s,]+?)\]?:(?P<port>\d+)",
    anchors=(", remote=",),
    example="RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/"
    "tcp/pair.cc:144] timed out connecting: SO_ERROR: Connection refused, remote=[192.0.2.7]:40001",
)
GLOO_OLD = _way(
    name="ways: gloo-old",
    pattern=rf"\bconnect \[(?P<address>[^\]]+)\]:(?P<port>\d+): (?P<why>{_ERRORS})"
    r"|Connect timeout \[(?P<waited>[^\]]+)\]",
    anchors=("connect [", "Connect timeout ["),
    example="RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:769] connect "
    "[192.0.2.7]:40001: Connection refused",
)
STORE_FAILED = _way(
    name="ways: store",
    pattern=r"client socket has failed to connect to (?P<final>any network address of )?"
    r"[\[(](?P<address>[^\],)\s]+)\]?(?:, |:)(?P<port>\d+)\)?"
    r"(?:.*(?:errno|system error): (?P<errno>\d+) - (?P<why>[A-Z][\w ]+)?)?",
    anchors=("client socket has failed to connect",),
    example="[W socket.cpp:558] [c10d] The client socket has failed to connect to [node-a]:29500 "
    "(errno: 113 - No route to host).",
)
STORE_SILENT = _way(
    name="ways: store-silent",
    pattern=r"server socket on \[?(?P<address>[^\]\s]+?)\]?:(?P<port>\d+) has timed out",
    anchors=("has timed out, will retry",),
    example="[W socket.cpp:436] [c10d] The server socket on [node-a]:29500 has timed out, will "
    "retry.",
)
STORE_ABSENT = _way(
    name="ways: store-absent",
    pattern=r"No socket on \((?P<address>[^,]+), (?P<port>\d+)\) is listening yet"
    r"|server socket on \[?(?P<host>[^\]\s]+?)\]?:(?P<at>\d+) is not yet listening",
    anchors=("is listening yet", "is not yet listening"),
    example="[I socket.cpp:522] No socket on (node-a, 29500) is listening yet, will retry.",
)
STORE_VALIDATE = _way(
    name="ways: store-validate",
    pattern=r"TCP client failed to connect/validate to host (?P<address>.+?):(?P<port>\d+) - "
    r"(?:retrying|timed out)(?: \([^)]*\))?:? ?(?P<why>.*)",
    anchors=("failed to connect/validate",),
    example="[W socket.cpp:210] TCP client failed to connect/validate to host 192.0.2.7:29500 - "
    "retrying (try=2, timeout=600000ms, delay=4013ms): Connection reset by peer",
)
OLD_TORCH = _way(
    name="ways: old-torch",
    pattern=rf"RuntimeError: (?!Connection reset)(?P<why>{_ERRORS})\s*$",
    anchors=tuple(f"RuntimeError: {words}" for words in _KINDS),
    example="RuntimeError: Connection refused",
)
MPI_CONNECT = _way(
    name="ways: mpi",
    pattern=r"connect\(\) to (?P<address>[\w.-]{1,120}|\[[\w:]{2,60}\])(?::(?P<port>\d+))? failed"
    rf"(?:[:,] ?(?:Error: +)?(?P<why>{_ERRORS}))?"
    r"|unable to connect from \"[^\"\n]{1,120}\" to \"(?P<host>[^\"\n]{1,120})\" "
    rf"\((?P<hydra>{_ERRORS})\)",
    anchors=("connect() to ", "unable to connect from "),
    example="[node-a][[38971,1],2][btl_tcp_endpoint.c:796:mca_btl_tcp_endpoint_complete_connect] "
    "connect() to 192.0.2.7 failed: No route to host (113)",
)
MPI_DAEMON = _way(
    name="ways: mpi-daemon",
    pattern=r"process or daemon was unable to complete a TCP connection",
    anchors=("unable to complete a TCP connection",),
    example="A process or daemon was unable to complete a TCP connection",
)
SSH_FAILED = _way(
    name="ways: ssh",
    pattern=r"ssh: connect to host (?P<address>\S+) port (?P<port>\d+): "
    rf"(?P<why>{_ERRORS})",
    anchors=("ssh: connect to host",),
    example="node-b: ssh: connect to host node-b port 22: No route to host",
    role=Role.CONFIRMATION,
)

_LAYERS: tuple[tuple[str, tuple[LogPattern, ...]], ...] = (
    (NCCL, (NCCL_CONNECT, NCCL_CALL, NCCL_GAVE_UP, NCCL_POLL)),
    (GLOO, (GLOO_CONNECT, GLOO_OLD)),
    (
        STORE,
        (
            *(STORE_FAILED, STORE_SILENT, STORE_ABSENT, STORE_VALIDATE, OLD_TORCH),
            watchdog.CLIENT_TIMEOUT,
        ),
    ),
    (MPI, (MPI_CONNECT, MPI_DAEMON)),
    (SSH, (SSH_FAILED,)),
)
_LAYER_OF = {one.name: layer for layer, patterns in _LAYERS for one in patterns}

OWN: tuple[LogPattern, ...] = tuple(
    one for _, patterns in _LAYERS for one in patterns if one is not watchdog.CLIENT_TIMEOUT
)
"""what peer-unreachable registers, so that logs are searched for them"""


class Attempt(NamedTuple):
    """One connection that did not come about."""

    seen: Sighting
    layer: str
    address: str
    """as the log names it, a name or an IP address; '' when it does not"""
    port: int | None
    kind: str
    """REFUSED, SILENT, NO_WAY, MASKED, '' when only the timeout is reported"""

    @property
    def where(self) -> str:
        if not self.address:
            return "an address that the log does not show"
        return f"{self.address} port {self.port}" if self.port else self.address


def attempts(wreckage: Wreckage, *layers: str) -> tuple[Attempt, ...]:
    """Every failed connection of these layers (of all, without any), in the order read."""
    found = (_attempt(s) for s in wreckage.sightings if s.pattern in _LAYER_OF)
    return tuple(one for one in found if not layers or one.layer in layers)


def as_asked(attempt: Attempt) -> bool:
    """Named as the user named it. torch also lists each address that it tried, and prints some of
    those wrongly: 10.9.0.1 port 29500 as `[100::]:42573` (2.13)."""
    seen = attempt.seen
    return seen.pattern != STORE_FAILED.name or "final" in seen.fields


def _attempt(seen: Sighting) -> Attempt:
    fields = seen.fields
    address = next((fields[n] for n in ("address", "host", "waited") if n in fields), "")
    port = fields.get("port") or fields.get("at")
    if not address and "validated" in fields:
        address = fields["validated"]
    if not port and address.count(":") == 1:
        address, _, port = address.partition(":")
    return Attempt(
        seen,
        _LAYER_OF[seen.pattern],
        address.strip("[]"),
        int(port) if port and port.isdigit() and len(port) < 6 else None,
        _kind(seen),
    )


def _kind(seen: Sighting) -> str:
    fields = seen.fields
    if "errno" in fields:
        final_no_way = fields["errno"] == "101" and "final" in fields
        return NO_WAY if final_no_way else _ERRNOS.get(fields["errno"], "")
    if seen.pattern == STORE_ABSENT.name or fields.get("clock") == "retries":
        return REFUSED
    if seen.pattern == NCCL_POLL.name:
        return MASKED
    if seen.pattern in (STORE_SILENT.name, MPI_DAEMON.name) or fields.get("clock") == "timeouts":
        return SILENT
    if "waited" in fields:
        return SILENT
    why = fields.get("why") or fields.get("hydra", "")
    return next((kind for words, kind in _KINDS.items() if words in why), "")


def commonest(kinds: Iterable[str]) -> str:
    """The most telling way in which calls ended: no way says more than silence, silence more than
    a refusal, which a peer that died leaves as well."""
    there = set(kinds)
    return next((kind for kind in (NO_WAY, SILENT, REFUSED, MASKED) if kind in there), "")
