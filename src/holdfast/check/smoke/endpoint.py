"""Where the ranks meet: the job's own master address and port, as far as one machine can."""

from __future__ import annotations

import random
import socket
from typing import NamedTuple

from holdfast.analysis.machine import Plan
from holdfast.errors import EnvironmentFailure
from holdfast.system.sockets import try_store_binds

LOOPBACK = "127.0.0.1"
FIRST_PORT = 20000
"""well above the services of a machine, below the ephemeral range of most"""


class Endpoint(NamedTuple):
    address: str
    port: int
    remark: str
    """why the address is not the one that was named, or ''"""

    def __str__(self) -> str:
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{host}:{self.port}"


def choose(plan: Plan) -> Endpoint:
    """The plan's own address and port. Only what cannot be used here is replaced.

    With several machines the master may be another one, while this test is about this
    machine alone: it then meets on loopback, and says so.
    """
    port = plan.port or free_port()
    if not plan.master_addr:
        return Endpoint(LOOPBACK, port, "")
    if plan.multi_node and not is_here(plan.master_addr):
        remark = f"{plan.master_addr} is not this machine: the ranks meet on {LOOPBACK}"
        return Endpoint(LOOPBACK, port, remark)
    return Endpoint(plan.master_addr, port, "")


def is_here(name: str) -> bool:
    """Does one of the name's addresses belong to this machine? The kernel knows: it lets us
    bind only those."""
    try:
        answers = socket.getaddrinfo(name, 0, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return any(_can_bind(family, address) for family, _, _, _, address in answers)


def _can_bind(family: int, address: object) -> bool:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind(address)  # type: ignore[arg-type]
    except OSError:
        return False
    return True


def free_port() -> int:
    """A port the store can bind, outside the range of outgoing connections.

    A port from inside (what `bind(0)` gives) could be taken by any outgoing connection
    before rank 0 gets to it.
    """
    with open("/proc/sys/net/ipv4/ip_local_port_range") as text:
        low, high = map(int, text.read().split())
    candidates = [port for port in range(FIRST_PORT, 65536) if not low <= port <= high]
    for port in random.sample(candidates, min(50, len(candidates))):
        errors = {bind.error for bind in try_store_binds(port)}
        if "" in errors and "EADDRINUSE" not in errors:
            return port
    raise EnvironmentFailure(
        "no free port for the smoke test outside the ephemeral range",
        hint="name one: holdfast check --smoke --port 29600",
    )
