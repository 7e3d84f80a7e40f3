"""How programs read variables and their values; versions as numbers.

torch: Utils.hpp, getCvarBool and getCvarInt; any other text makes torch raise 'Invalid value for
environment variable'. NCCL: src/misc/param.cc, strtoll with base 0, text it cannot read is 0.
"""

from __future__ import annotations

import re

from holdfast.analysis.machine import MachineFacts, Setting

YES = frozenset({"y", "yes", "1", "t", "true"})
NO = frozenset({"n", "no", "0", "f", "false"})


def torch_bool(value: str) -> bool | None:
    """None when torch would refuse the value."""
    text = value.lower()
    return True if text in YES else False if text in NO else None


def torch_int(value: str) -> int | None:
    """std::stoi reads the number in front and ignores the rest; None when there is none."""
    match = re.match(r"[ \t\n\v\f\r]*([+-]?[0-9]+)", value)
    return int(match[1]) if match else None


def nccl_int(value: str) -> int:
    """strtoll: decimal, 0x… or octal in front; 0 when no number is there."""
    match = re.match(r"[ \t\n\v\f\r]*([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)", value)
    if not match:
        return 0
    digits = match[2]
    base = 16 if digits[:2] in ("0x", "0X") else 8 if digits[0] == "0" else 10
    return int(digits, base) * (-1 if match[1] == "-" else 1)


def torch_setting(facts: MachineFacts, *names: str) -> Setting | None:
    """The first of these spellings that torch sees.

    Only the environment counts: NCCL reads its files when it starts, after torch has looked.
    """
    found = (facts.setting(name) for name in names)
    return next((s for s in found if s and s.origin == "environment"), None)
