"""What nodes are asked to try, and what they answer."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from holdfast.analysis.nodes import Listening, PathLoss, PathSizes, Reached, RouteTo, Target


class ProbeMessage(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The base of all of them; the tag says which."""

    trial: int = 0
    """questions and answers of one trial have the same number; check makes one only"""


class OpenListeners(ProbeMessage, frozen=True):
    node: str
    """what the others call you"""
    addresses: tuple[tuple[str, str], ...]
    """interface and address"""
    master_port: int
    """0: there is none to try"""
    key: bytes
    """proves to the others that a listener is ours"""


class OpenedListeners(ProbeMessage, frozen=True):
    listening: Listening


class TryPaths(ProbeMessage, frozen=True):
    node: str
    targets: tuple[Target, ...]
    in_depth: tuple[str, ...]
    """the nodes to which sizes and loss are measured as well"""
    key: bytes
    seconds: float


class TriedPaths(ProbeMessage, frozen=True):
    routes: tuple[RouteTo, ...]
    reach: tuple[Reached, ...]
    sizes: tuple[PathSizes, ...]
    losses: tuple[PathLoss, ...]


ProbeRequest: TypeAlias = OpenListeners | TryPaths
ProbeReply: TypeAlias = OpenedListeners | TriedPaths
