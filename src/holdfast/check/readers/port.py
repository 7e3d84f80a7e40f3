"""The store's port: can it be bound, who is on it, and is that a store already?"""

from __future__ import annotations

from holdfast.analysis.machine import Connection, Plan, PortFacts, PortRanges, StoreAnswer, Unread
from holdfast.system import sockets, store_protocol, tcp_table
from holdfast.system.process import user_name

LOOPBACK_FOR = {"0.0.0.0": "127.0.0.1", "::": "::1"}
SYSCTL = "/proc/sys/net/ipv4"


def read_port(plan: Plan) -> PortFacts:
    port = plan.port
    if port == 0:
        return PortFacts(port=0, binds=(), listeners=(), others=(), store=None)
    binds = sockets.try_store_binds(port)
    # The table comes before the question to the listener, which would add its own connection.
    rows = tcp_table.read(port)
    owners = tcp_table.owners_of({row.inode for row in rows if row.inode})
    found = [
        Connection(
            local=_endpoint(row.local_ip, row.local_port),
            peer=_endpoint(row.peer_ip, row.peer_port),
            state=row.state,
            seconds_left=row.seconds_left,
            user=user_name(row.uid) if row.inode else "",
            owner=owners[row.inode] if row.inode else None,
        )
        for row in rows
    ]
    return PortFacts(
        port=port,
        binds=binds,
        listeners=tuple(c for c in found if c.state == "LISTEN"),
        others=tuple(c for c in found if c.state != "LISTEN"),
        store=_ask([row.local_ip for row in rows if row.state == "LISTEN"], port),
    )


def _endpoint(ip: str, port: int) -> str:
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


def _ask(listening_on: list[str], port: int) -> StoreAnswer | Unread | None:
    """The first listener that is a store, else what the first one said.

    At most two are asked, one per family as a rule: silent ones cost time, and all readers
    together have less than a second.
    """
    addresses = dict.fromkeys(LOOPBACK_FOR.get(ip, ip) for ip in listening_on)
    answers = [store_protocol.ask_store(address, port) for address in list(addresses)[:2]]
    stores = [a for a in answers if isinstance(a, StoreAnswer) and a.is_store]
    return next(iter(stores + answers), None)


def read_port_ranges(plan: Plan) -> PortRanges:  # noqa: ARG001 - every reader is handed the plan
    low, high = _read("ip_local_port_range").split()
    try:
        first_unprivileged = int(_read("ip_unprivileged_port_start"))
    except FileNotFoundError:  # kernels before 4.11 have no such setting
        first_unprivileged = 1024
    return PortRanges(
        ephemeral_low=int(low),
        ephemeral_high=int(high),
        reserved=parse_ranges(_read("ip_local_reserved_ports")),
        first_unprivileged=first_unprivileged,
    )


def _read(name: str) -> str:
    with open(f"{SYSCTL}/{name}", encoding="utf-8") as file:
        return file.read()


def parse_ranges(text: str) -> tuple[tuple[int, int], ...]:
    """'8080,9148-9150' -> ((8080, 8080), (9148, 9150))."""
    ranges = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        ranges.append((int(first), int(last or first)))
    return tuple(ranges)
