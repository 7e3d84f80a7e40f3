"""The door for stock torchrun: `torchrun --rdzv-backend holdfast …`.

torch opens it in every process that imports its elastic package, so nothing is behind it
until the handler is really asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def handler() -> Callable[[Any], Any]:
    """The entry point `torchrun.handlers`: torch calls it for the function that makes one."""
    return _create


def _create(parameters: Any) -> Any:
    from holdfast.run.launch.rendezvous import create  # noqa: PLC0415 - see above

    return create(parameters)
