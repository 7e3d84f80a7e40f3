"""Equality that also looks at types, signs of zero and the bits of a NaN."""

from __future__ import annotations

import struct
from typing import Any


def same(a: Any, b: Any) -> bool:  # noqa: PLR0911
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return struct.pack("d", a) == struct.pack("d", b)
    if isinstance(a, complex):
        return same(a.real, b.real) and same(a.imag, b.imag)
    if isinstance(a, dict):
        pairs = zip(a.items(), b.items(), strict=False)
        return (
            len(a) == len(b)
            and getattr(a, "default_factory", None) is getattr(b, "default_factory", None)
            and all(same(x, y) for x, y in pairs)
        )
    if isinstance(a, (set, frozenset)):
        return len(a) == len(b) and all(any(same(x, y) for y in b) for x in a)
    if isinstance(a, (list, tuple)) or hasattr(a, "maxlen"):
        alike = getattr(a, "maxlen", None) == getattr(b, "maxlen", None)
        return alike and len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)
