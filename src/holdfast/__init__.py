"""holdfast makes distributed PyTorch training start, keep going and explain itself.

The map of this tree, room by room: docs/design.md, generated from the code.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.checkpoint.checkpoint import Checkpoint
    from holdfast.checkpoint.reading.load import load
    from holdfast.checkpoint.sampler import Sampler
    from holdfast.checkpoint.state import State
    from holdfast.checkpoint.stateful_loader import StatefulLoader
    from holdfast.errors import (
        CollectiveTimeout,
        ConfigError,
        EnvironmentFailure,
        Error,
        RanksDiffer,
        ResumeRefused,
    )
    from holdfast.rank.deadline import deadline
    from holdfast.rank.init import Run, init
    from holdfast.rank.phase import heartbeat, phase
    from holdfast.rank.wait_for import wait_for

__version__ = "0.1.0"

__all__ = [
    "Checkpoint",
    "CollectiveTimeout",
    "ConfigError",
    "EnvironmentFailure",
    "Error",
    "RanksDiffer",
    "ResumeRefused",
    "Run",
    "Sampler",
    "State",
    "StatefulLoader",
    "deadline",
    "heartbeat",
    "init",
    "load",
    "phase",
    "wait_for",
]

_HOME = {
    "Checkpoint": "checkpoint.checkpoint",
    "CollectiveTimeout": "errors",
    "ConfigError": "errors",
    "EnvironmentFailure": "errors",
    "Error": "errors",
    "RanksDiffer": "errors",
    "ResumeRefused": "errors",
    "Run": "rank.init",
    "Sampler": "checkpoint.sampler",
    "State": "checkpoint.state",
    "StatefulLoader": "checkpoint.stateful_loader",
    "deadline": "rank.deadline",
    "heartbeat": "rank.phase",
    "init": "rank.init",
    "load": "checkpoint.reading.load",
    "phase": "rank.phase",
    "wait_for": "rank.wait_for",
}


if not TYPE_CHECKING:  # a type checker sees the real names above, and no others

    def __getattr__(name: str) -> object:
        """The library's names, imported when used: `holdfast --help` does not need them."""
        if name not in _HOME:
            raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
        return getattr(import_module(f"holdfast.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
