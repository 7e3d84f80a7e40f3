"""holdfast's table in the nearest pyproject.toml, and any other TOML file that a user names."""

from __future__ import annotations

import os
import sys
from typing import Any, NamedTuple

from holdfast.errors import EnvironmentFailure

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE = "pyproject.toml"
LARGEST = 4 << 20


class HoldfastTable(NamedTuple):
    file: str
    table: Any
    """what is written for holdfast; anything that TOML can hold"""


def nearest(start: str) -> HoldfastTable | None:
    """From the nearest pyproject.toml at or above `start` with a table for holdfast."""
    folder = os.path.abspath(start)
    if not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    while True:
        file = os.path.join(folder, FILE)
        tools = (_read_if_there(file) or {}).get("tool")
        if isinstance(tools, dict) and "holdfast" in tools:
            return HoldfastTable(file, tools["holdfast"])
        parent = os.path.dirname(folder)
        if parent == folder:
            return None
        folder = parent


def _read_if_there(file: str) -> dict[str, Any] | None:
    try:
        return read(file) if os.path.isfile(file) else None  # a FIFO of that name would block
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    except OSError as problem:
        raise EnvironmentFailure(f"{file} cannot be read: {problem.strerror}") from problem


def read(file: str) -> dict[str, Any]:
    """Raises OSError, or EnvironmentFailure where it is no TOML."""
    with open(file, "rb") as opened:
        text = opened.read(LARGEST + 1)
    if len(text) > LARGEST:
        raise EnvironmentFailure(f"{file} is larger than {LARGEST >> 20} MiB")
    try:
        document: dict[str, Any] = tomllib.loads(text.decode())
    except RecursionError as problem:
        raise EnvironmentFailure(f"{file} is nested too deeply to be read") from problem
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise EnvironmentFailure(f"{file} is not valid TOML: {problem}") from problem
    return document
