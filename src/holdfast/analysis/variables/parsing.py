"""How programs read variables and their values; versions as numbers.

torch: Utils.hpp, getCvarBool and getCvarInt; any other text makes torch raise 'Invalid value for
environment variable'.
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


def torch_setting(facts: MachineFacts, *names: str) -> Setting | None:
    """The first of these spellings that torch sees.

    Only the environment counts: NCCL reads its files when it starts, after torch has looked.
    """
    found = (facts.setting(name) for name in names)
    return next((s for s in found if s and s.origin == "environment"), None)
