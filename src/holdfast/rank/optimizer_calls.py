"""How many steps each optimizer has taken.

The count of the whole process is not the same on all ranks: one of them may train something beside
(a probe on rank 0). An optimizer of parameters that ranks share takes its steps on all of them.
"""

from __future__ import annotations

import weakref
from typing import Any

_taken: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()


def taken(optimizer: Any) -> int:
    return _taken.get(optimizer, 0)


def note(optimizer: Any) -> int:
    """It has taken another one: how many are these?"""
    _taken[optimizer] = count = taken(optimizer) + 1
    return count
