"""Where something stands in a file."""

from __future__ import annotations

import msgspec


class Place(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """Line and column count from 1, as editors do; `file` is '' for the environment."""

    file: str
    line: int
    column: int = 1
