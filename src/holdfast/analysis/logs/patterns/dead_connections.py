"""What NCCL and Gloo print when an established connection stops delivering."""

from __future__ import annotations

import functools

from holdfast.analysis.logs.pattern import LogPattern, Role
from holdfast.analysis.logs.wreckage import Sighting

_pattern = functools.partial(LogPattern, slug="mtu-black-hole")

DIED_IN_USE = _pattern(
    name="mtu-black-hole: died-in-use",
    pattern=r"Call to (?:recv|send)(?: (?:from|to) (?P<address>[^\s<]+)(?:<[^>]*>)?)? failed ?: ?"
    r"(?P<why>Connection timed|No route)"
    r"|(?:Read error|writev) \[(?P<peer>[^\]]+)\]:\d+: (?P<error>Connection timed)",
    anchors=("Connection timed", "No route"),
    example="node-a:411:498 [0] misc/socket.cc:46 NCCL WARN socketProgressOpt: Call to recv from "
    "192.0.2.7<43210> failed : Connection timed out",
    role=Role.CASCADE,
)


def peer_of(seen: Sighting) -> str:
    """The address at the other end of the connection, or ''."""
    return seen.fields.get("address") or seen.fields.get("peer", "")
