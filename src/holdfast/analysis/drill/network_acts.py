"""What a drill does to lab hosts and to the network between them, as data."""

from __future__ import annotations

from typing import Literal

from holdfast.analysis.drill.injection import Act


class LoseHost(Act, frozen=True, kw_only=True):
    """A host goes silent: its cables are out or, with `power`, all its processes end as well.

    When it is lifted, or the job is started again, the cables are in; a launcher is started there
    if none runs.
    """

    host: str
    power: bool = False


class BreakPath(Act, frozen=True, kw_only=True):
    """The path between two hosts. Lifted: it is whole again."""

    ends: tuple[str, str]
    how: Literal["loss", "mtu", "drop"]
    amount: int = 0
    """loss: percent; mtu: bytes of the largest packet that passes"""
    one_way: bool = False
    """only from the first end to the second"""


class SplitNetwork(Act, frozen=True, kw_only=True):
    """No packet passes between these groups of hosts. Lifted: it does, and a launcher is started
    where the one before has ended."""

    groups: tuple[tuple[str, ...], ...]


class BlockPort(Act, frozen=True, kw_only=True):
    """A firewall on a host, from before the start."""

    host: str
    blocked: Literal["endpoint", "all but the endpoint"]
    """'endpoint': the port where the launchers meet"""
    answer: Literal["drop", "reject"] = "drop"


class BreakName(Act, frozen=True, kw_only=True):
    """What a host's own hosts file says of a name, from before the start."""

    host: str
    name: str
    address: str = ""
    """'': the name does not resolve there"""


class ShiftClock(Act, frozen=True, kw_only=True):
    """A host's wall clock is ahead (behind: negative), from before the start."""

    host: str
    seconds: int


class KeepAway(Act, frozen=True, kw_only=True):
    """No launcher is started on that host. Lifted: it is."""

    host: str


class TypeOnHost(Act, frozen=True, kw_only=True):
    """The launcher of one host is started with another setting or flag than the others."""

    host: str
    environment: tuple[tuple[str, str], ...] = ()
    flags: tuple[str, ...] = ()
    """torchrun's spelling, after the others: a flag that is there already is replaced"""
