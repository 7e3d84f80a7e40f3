"""How NCCL reads a number from a setting: src/misc/param.cc, strtoll with base 0."""

from __future__ import annotations

import re


def nccl_int(value: str) -> int:
    """strtoll: decimal, 0x… or octal in front; 0 when no number is there."""
    match = re.match(r"[ \t\n\v\f\r]*([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)", value)
    if not match:
        return 0
    digits = match[2]
    base = 16 if digits[:2] in ("0x", "0X") else 8 if digits[0] == "0" else 10
    return int(digits, base) * (-1 if match[1] == "-" else 1)
