"""Which program reads which environment variable, and what its value means."""

from __future__ import annotations

import difflib
import functools

from holdfast.analysis.variables import one_slip
from holdfast.analysis.variables.table import Variable, tables

__all__ = [
    "Variable",
    "defaults_since",
    "everything",
    "lookup",
    "misspelt",
    "near_names",
    "nearest",
    "prefix_of",
    "prefixes",
    "version_of",
    "version_read",
]


@functools.cache
def everything() -> dict[str, Variable]:
    """Every row by name; families under their name with the '*'."""
    return {row.name: row for row in tables().rows}


def prefixes() -> tuple[str, ...]:
    """Names that begin so are judged; whether any other variable is read we cannot know."""
    return tuple(tables().version_of_prefix)


def version_read(name: str) -> str:
    """The version whose names the table holds, for a name that `prefix_of` has a prefix for."""
    return tables().version_of_prefix[prefix_of(name)]


def version_of(row: Variable) -> str:
    """What the row was read from; '' where only documentation tells."""
    return tables().version_of_reader.get(row.reader, "")


def defaults_since(row: Variable) -> str:
    """The oldest version that has the default of this row, as far as we looked."""
    version = version_of(row).rpartition(" ")[2]
    return tables().defaults_of_reader.get(row.reader, version)


def lookup(name: str) -> Variable | None:
    """The row of this variable, or of the family it belongs to."""
    table = everything()
    if name in table:
        return table[name]
    best = max((stem for stem in _families() if name.startswith(stem)), key=len, default=None)
    return None if best is None else table[f"{best}*"]


@functools.cache
def _families() -> tuple[str, ...]:
    return tuple(key[:-1] for key in everything() if key.endswith("*"))


def prefix_of(name: str) -> str:
    """The judged prefix of this name; '' when it has none."""
    return max((p for p in prefixes() if name.startswith(p)), key=len, default="")


def nearest(name: str) -> str:
    """The known variable this may be a slip of; '' when none is close."""
    stem = name.strip().upper()
    candidates = _names()
    if stem in candidates:
        return stem
    close = difflib.get_close_matches(stem, candidates, n=1, cutoff=0.85)
    return close[0] if close else ""


@functools.cache
def misspelt(name: str) -> str:
    """The known variable that this is one slip away from, whatever its prefix: `NCL_DEBUG`,
    `OMP_NUM_THREAD`; '' for every other name.

    `nearest` may guess, since it is asked only behind a prefix whose every name is known.
    """
    if lookup(name) is not None or "_" not in name:
        return ""
    return next((known for known in _slipped_on() if one_slip.apart(name, known)), "")


@functools.cache
def _slipped_on() -> tuple[str, ...]:
    """Names that people type, and long enough for a slip to be one."""
    typed = (row for row in everything().values() if row.is_read and row.reader not in _GIVEN)
    return tuple(row.name for row in typed if len(row.name) >= 8 and "_" in row.name)


_GIVEN = ("Slurm", "schedulers", "MPI", "build tools", "your script")
"""set by programs, or named as the user likes"""


def near_names(name: str) -> list[str]:
    """Known variables a person may have meant: close spellings, then names with all its words."""
    stem = name.strip().upper()
    words = {word for word in stem.split("_") if word}
    close = difflib.get_close_matches(stem, _names(), n=5, cutoff=0.7)
    holding = [known for known in _names() if words and words <= set(known.split("_"))]
    return list(dict.fromkeys([*close, *holding]))


def _names() -> list[str]:
    return [row.name for row in everything().values() if row.is_read and row.name[-1] != "*"]
