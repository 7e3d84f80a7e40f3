"""Names: how this machine and the master resolve, and whether the master can be reached."""

from __future__ import annotations

import ipaddress
import socket
import time

from holdfast.analysis.machine import Plan, Reach, Resolution, Unread
from holdfast.check.readers.network import own_addresses
from holdfast.system.sockets import connect

CONNECT_SECONDS = 0.5


def read_own_name(plan: Plan) -> Resolution:  # noqa: ARG001 - every reader is handed the plan
    return resolve(socket.gethostname())


def read_own_fqdn(plan: Plan) -> str:  # noqa: ARG001
    return socket.getfqdn()


def read_master_name(plan: Plan) -> Resolution | None:
    return resolve(plan.master_addr) if plan.master_addr else None


def read_master_reach(plan: Plan) -> Reach | Unread | None:
    if not plan.master_addr or plan.port == 0:
        return None
    master = resolve(plan.master_addr)
    if master.error:
        return Unread(why=f"{plan.master_addr} does not resolve: {master.error}")
    own = own_addresses()
    if any(_is_here(address, own) for address in master.addresses):
        return None
    # One deadline for all of them; the first that connects is the answer, else the first failure.
    share = CONNECT_SECONDS / len(master.addresses)
    tries = []
    for address in master.addresses:
        tries.append(connect(address, plan.port, seconds=share))
        if not tries[-1].error:
            return tries[-1]
    return tries[0]


def _is_here(address: str, own: frozenset[str]) -> bool:
    ip = ipaddress.ip_address(address)
    return ip.is_loopback or ip.is_unspecified or address in own


def resolve(name: str) -> Resolution:
    """As the training processes will see it: files, DNS, and whatever else libc is told."""
    start = time.monotonic()
    addresses: tuple[str, ...] = ()
    error = ""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        addresses = tuple(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))
    except socket.gaierror as problem:
        error = problem.strerror or str(problem)
    except UnicodeError as problem:  # Python's own refusal: an empty or overlong label
        error = f"not a possible host name ({problem})"
    return Resolution(name=name, addresses=addresses, error=error, seconds=time.monotonic() - start)
