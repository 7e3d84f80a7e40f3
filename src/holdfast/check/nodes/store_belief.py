"""Would torchrun's c10d on this node serve the store? Exactly one node must.

The rule is torch's own (torch/distributed/elastic/rendezvous/utils.py, _matches_machine_hostname):
it compares the endpoint's host with the addresses of this machine's own name, and so misses what
other interfaces have.
"""

from __future__ import annotations

import ipaddress
import socket

from holdfast.analysis.nodes import StoreBelief


def store_belief(host: str) -> StoreBelief:
    hosts_it, why = _matches(host, socket.gethostname())
    return StoreBelief(endpoint=host, hosts_it=hosts_it, why=why)


def _matches(host: str, own: str) -> tuple[bool, str]:
    if host == "localhost" or _is_loopback(host):
        return True, f"{host} is every machine's own name for itself"
    if host == own:
        return True, f"{host} is this machine's name"
    mine, canonical = _resolve(own)
    if host in canonical:
        return True, f"{host} is the full name of {own}"
    theirs = {host} if _is_address(host) else _resolve(host)[0]
    if shared := sorted(mine & theirs):
        return True, f"{own} is {shared[0]}, and so is {host}"
    listed = ", ".join(sorted(mine)) or "nothing"
    return False, f"own name {own} is {listed}; {host} is {', '.join(sorted(theirs)) or 'nothing'}"


def _resolve(name: str) -> tuple[set[str], set[str]]:
    """Addresses and canonical names."""
    try:
        found = socket.getaddrinfo(name, None, proto=socket.IPPROTO_TCP, flags=socket.AI_CANONNAME)
    except (OSError, UnicodeError):
        return set(), set()
    return {str(one[4][0]) for one in found}, {one[3] for one in found if one[3]}


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_loopback(host: str) -> bool:
    return _is_address(host) and ipaddress.ip_address(host).is_loopback
