"""Where RAS listens: what a user types, and NCCL_RAS_ADDR."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import NamedTuple

PORT = 28028
"""NCCL_RAS_CLIENT_PORT in src/ras/ras_internal.h"""
LOCALHOST = "localhost"
SETTING = "NCCL_RAS_ADDR"
_ADDRESS = re.compile(
    r"(?:\[(?P<six>[0-9A-Fa-f:.%\w]{2,64})\]|(?P<host>[\w.-]{1,253}))?(?::(?P<port>\d{1,5}))?",
    re.ASCII,
)


class RasAddress(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def needs_no_resolver(self) -> bool:
        """It is a number, or the name that every machine has: asking takes no name server."""
        return self.host == LOCALHOST or _number(self.host) is not None

    @property
    def on_this_machine(self) -> bool:
        number = _number(self.host)
        return self.host == LOCALHOST or (number is not None and number.is_loopback)


def parse(typed: str) -> RasAddress:
    """'HOST', 'HOST:PORT', ':PORT', '[::1]:28028'; '' is localhost:28028. Raises ValueError."""
    found = _ADDRESS.fullmatch(typed.strip())
    if found is None:
        raise ValueError(f"{typed!r} is not HOST:PORT")
    port = int(found["port"] or PORT)
    if not 0 < port < 65536:
        raise ValueError(f"port must be 1 to 65535, got {port}")
    return RasAddress(_reachable(found["six"] or found["host"] or LOCALHOST), port)


def of_environment(environment: Mapping[str, str]) -> RasAddress:
    """Where the ranks of a job with this environment listen. Raises ValueError."""
    return parse(environment.get(SETTING, ""))


def _reachable(host: str) -> str:
    """Who listens on all addresses is asked on the loopback one."""
    number = _number(host)
    if number is None or not number.is_unspecified:
        return host
    return "127.0.0.1" if number.version == 4 else "::1"


def _number(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
