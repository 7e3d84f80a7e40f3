"""holdfast makes distributed PyTorch training start, keep going and explain itself.

The map of this tree, room by room: docs/design.md, generated from the code.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.checkpoint import cadence
    from holdfast.checkpoint.sampler import Sampler
    from holdfast.checkpoint.save import Checkpoint
    from holdfast.checkpoint.state import State
    from holdfast.rank.init import Run, init
    from holdfast.rank.limit import limit
    from holdfast.rank.phase import beat, phase
    from holdfast.rank.wait import CollectiveTimeout, wait

__version__ = "0.1.0"

__all__ = [
    "Checkpoint",
    "CollectiveTimeout",
    "Run",
    "Sampler",
    "State",
    "beat",
    "cadence",
    "init",
    "limit",
    "phase",
    "wait",
]

_HOME = {
    "Checkpoint": "checkpoint.save",
    "CollectiveTimeout": "rank.wait",
    "Run": "rank.init",
    "Sampler": "checkpoint.sampler",
    "State": "checkpoint.state",
    "beat": "rank.phase",
    "cadence": "checkpoint",
    "init": "rank.init",
    "limit": "rank.limit",
    "phase": "rank.phase",
    "wait": "rank.wait",
}


if not TYPE_CHECKING:  # a type checker shall see the real names, and no others

    def __getattr__(name: str) -> object:
        """The library's names, imported when used: `holdfast --help` has no need of them."""
        if name not in _HOME:
            raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
        home = f"holdfast.{_HOME[name]}"
        if name == "cadence":  # a module itself
            return import_module(f"{home}.{name}")
        return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
