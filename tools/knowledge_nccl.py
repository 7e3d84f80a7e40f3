"""holdfast's table of NCCL's variables and NCCL's texts, compared with a libnccl.so.2."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from holdfast.analysis.variables.table import Variable, tables
from holdfast.analysis.versions import release
from tools import nccl_library, wordings

IN = Path("nvidia/nccl/lib/libnccl.so.2")
"""where a wheel has it"""
CHOSEN_LATER = frozenset({-1, -2, -(2**31), 2**63 - 1})
"""defaults that only say that NCCL decides when it runs"""


def differences(library: Path) -> tuple[str, list[str]]:
    """Its version, and a sentence for everything that differs. Raises ValueError for no NCCL."""
    data = library.read_bytes()
    version = nccl_library.version(data)
    read = nccl_library.variables(library)
    rows = {row.name: row for row in tables().rows if row.reader == "NCCL"}
    known = {row.name for row in tables().rows}
    found = [
        f"variable {name} is read, and not in the table (default {_shown(read[name])})"
        for name in sorted(read.keys() - known)
    ]
    found += [
        f"variable {row.name} is in the table, and not in the library"
        for row in rows.values()
        if _is_of(row, version) and not _holds(data, row.name)
    ]
    found += _defaults(rows, read, version)
    found += wordings.missing("nccl", version, [data])
    return version, found


def _is_of(row: Variable, version: str) -> bool:
    """Whether this version should read it, by the table."""
    here = release(version)
    begun = not row.since or release(row.since) <= here
    over = bool(row.until) and release(row.until)[: len(here)] < here
    return row.name[-1] != "*" and begun and not over


def _holds(data: bytes, name: str) -> bool:
    """As a string of its own, or as the end of another."""
    return name.encode() + b"\0" in data


def _defaults(
    rows: dict[str, Variable], read: dict[str, int | None], version: str
) -> Iterator[str]:
    """Plain numbers only: what NCCL chooses when it runs has other words in the table."""
    if release(version) < release(tables().defaults_of_reader.get("NCCL", "")):
        return
    for name, default in read.items():
        row = rows.get(name)
        if row is None or default is None or default in CHOSEN_LATER:
            continue
        if row.default.lstrip("-").isdecimal() and int(row.default) != default:
            yield f"variable {name}: its default is {default}, in the table {row.default}"


def _shown(default: int | None) -> str:
    if default is None:
        return "no number"
    return "chosen when it runs" if default in CHOSEN_LATER else str(default)
