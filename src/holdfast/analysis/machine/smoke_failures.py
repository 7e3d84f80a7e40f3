"""How a smoke test fails, in terms that a fault claims as its own (`FAULT.errno(…)` and others)."""

from __future__ import annotations

import enum
from typing import NamedTuple

FOREIGN_STORE = "holdfast: another job's store"
"""how the error of a rank begins that found the store of another job"""


class SmokeFailure(enum.Enum):
    """What ranks do without a word that could be looked up."""

    LOOPBACK = "this machine cannot connect to itself"
    NUMBERING = "ranks differ about the master, share a GPU, or cannot take part"
    MISSING = "a rank never started, was stopped, exited or fell silent"
    CRASH = "a rank was ended by a crash inside native code"


class ErrorMeaning(NamedTuple):
    """What an error of the network, the kernel or the resolver means.

    torch and NCCL report errors as text: `number` is the errno that is in it, `pattern` a sentence
    that says more than the errno does.
    """

    words: str
    slug: str
    """the fault behind it, '' when it can be several"""
    number: int = 0
    pattern: str = ""
    nccl_before: str = ""
    """only said by an NCCL older than this"""
