"""What the machine that starts a job says to its hosts, and what they answer."""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class HostsMessage(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The base of all of them; the tag says which."""


# --- to a host ------------------------------------------------------------------------------------


class LookAtHost(HostsMessage, frozen=True):
    folder: str
    """the working folder of the job"""


class HoldPort(HostsMessage, frozen=True):
    """Listen there until the launcher is started, so that others can try to connect."""

    port: int
    """0: 29500, or a free one where that is taken"""


class TryPlaces(HostsMessage, frozen=True):
    places: tuple[str, ...]
    port: int


class StartLauncher(HostsMessage, frozen=True):
    arguments: tuple[str, ...]
    folder: str
    environment: dict[str, str]
    token: str
    goes_on_alone: bool
    """it continues when this connection ends: it was started with nohup"""


class SendSignal(HostsMessage, frozen=True):
    number: int


# --- from a host ----------------------------------------------------------------------------------


class HostLook(HostsMessage, frozen=True):
    host: str
    addresses: tuple[str, ...]
    folder: bool
    """the working folder is there"""
    release: str
    """of holdfast"""


class PortHeld(HostsMessage, frozen=True):
    port: int
    problem: str = ""


class PlacesTried(HostsMessage, frozen=True):
    reached: tuple[str, ...]
    failed: tuple[str, ...]
    """'10.0.0.7: Connection refused'"""


class LauncherOutput(HostsMessage, frozen=True):
    number: int
    """1 for stdout, 2 for stderr"""
    content: bytes


class LauncherExited(HostsMessage, frozen=True):
    code: int
    """128 + signal where one ended it"""
    killed: bool = False
    """a signal ended the launcher itself"""


ToHost: TypeAlias = LookAtHost | HoldPort | TryPlaces | StartLauncher | SendSignal
FromHost: TypeAlias = HostLook | PortHeld | PlacesTried | LauncherOutput | LauncherExited
