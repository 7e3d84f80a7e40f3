"""What `holdfast env` says: settings and their effect, timeouts, all about one variable.

Nouns only: env/ makes them, view/ shows them.
"""

from __future__ import annotations

import enum

import msgspec

from holdfast.analysis.variables import Variable
from holdfast.findings import Status

TYPED = "command line"
"""origin of what was typed after `--`"""


class Effect(enum.Enum):
    """Whether a setting takes effect."""

    IN_FORCE = "in force"
    REDUNDANT = "redundant"
    NO_EFFECT = "has no effect"
    NO_READER = "no reader here"
    OVERRIDDEN = "overridden"
    DEPRECATED = "deprecated"
    CONFLICT = "conflict"
    HARMFUL = "harmful"
    UNKNOWN = "unknown"


class SettingStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One setting, and whether it takes effect."""

    name: str
    value: str
    """secrets already struck out"""
    origin: str
    """'environment', 'command line', or 'FILE:LINE' of an nccl.conf"""
    verdict: Effect
    status: Status
    """ok, note, warning or error: what `--fail-on` goes by"""
    why: str = ""
    """what was seen and what it means; '' where there is nothing to say"""
    summary: str = ""
    """the same in a few words"""
    fix: str = ""
    row: Variable | None = None
    read_by: tuple[str, ...] = ()
    """installed programs whose own text holds the name: proof"""


class Timeout(msgspec.Struct, frozen=True, kw_only=True):
    """One timeout."""

    name: str
    """what runs out: 'NCCL groups', 'rendezvous: join (c10d)'"""
    key: str
    """stable: 'group-nccl', 'join'"""
    stage: str
    """the part of a job's life it belongs to: a key of STAGES"""
    seconds: float | None
    """None: never runs out, or (not `sure`) it cannot be known before the job runs"""
    origin: str
    """a variable, a flag, FILE:LINE of the script, or 'default of torch 2.13.0'"""
    does: str
    """what it ends or holds"""
    source: str
    sure: bool = True
    """False: the script or another version may have another one"""
    remark: str = ""


STAGES = {
    "start": "while it starts",
    "run": "while it communicates",
    "watch": "what watches it",
    "end": "when it ends",
    "outside": "from outside",
}


class VariableInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `holdfast env NAME`."""

    name: str
    row: Variable | None
    """None where the table does not hold it"""
    version: str
    """what the row was read from"""
    now: SettingStatus | None
    """None where it is not set"""
    read_by: tuple[str, ...]
    searched: tuple[str, ...]
    """programs that were searched for the name; empty where none could be"""
    bears_on: tuple[tuple[str, str], ...] = ()
    """(other variable, how)"""
    spellings: tuple[str, ...] = ()
    """older names of the same setting"""
    near: tuple[str, ...] = ()
    """names that may have been meant"""
