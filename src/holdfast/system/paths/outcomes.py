"""What a failed connect to a live listener means."""

from __future__ import annotations

import errno
import os

from holdfast.analysis.nodes import Outcome
from holdfast.system.paths.icmp import IcmpError

_UNREACHABLE = {
    errno.EHOSTUNREACH,
    errno.ENETUNREACH,
    errno.EHOSTDOWN,
    errno.ENONET,
    errno.EACCES,
    errno.ENOPROTOOPT,
}
_NO_ROUTE = {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EACCES, errno.EINVAL}
"""no such route, and routes of the kinds unreachable, prohibit and blackhole"""


def outcome_of(number: int, *, at_once: bool, icmp: IcmpError | None, local: str) -> Outcome:
    """`at_once`: connect() itself returned the error, so that nothing was sent; `local`: the
    address the kernel had chosen to send from."""
    if number == errno.ECONNREFUSED:
        return Outcome.REFUSED
    if icmp and icmp.host_unreachable and icmp.sender == local:
        return Outcome.NO_NEIGHBOUR  # this kernel says so to itself when no host answers ARP
    if at_once and icmp is None and number in _NO_ROUTE:
        return Outcome.NO_ROUTE
    if number in _UNREACHABLE or (number == errno.EPERM and at_once):
        return Outcome.REJECTED
    return Outcome.DROPPED if number == errno.ETIMEDOUT else Outcome.FAILED


def error_words(number: int, icmp: IcmpError | None) -> str:
    """'EHOSTUNREACH: No route to host; ICMP 'host administratively prohibited' from 10.0.0.2'."""
    name = errno.errorcode.get(number, str(number))
    answer = icmp.words if icmp else "a reset came back" if number == errno.ECONNREFUSED else ""
    return f"{name}: {os.strerror(number)}" + (f"; {answer}" if answer else "")
