"""The table that `torchfrtrace -j` prints of all recorders -> a dump of each rank. Pure.

A column for each rank, a row for each entry. With `--verbose` an entry has its group and number;
without, it is known only that the n-th entries stand in one row, which is enough where all ranks
did the same. The result is a document as torch itself would write it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

_HEADER = re.compile(r"^Rank \d{1,7}(?: +Rank \d{1,7})* *$", re.MULTILINE)
_LOOKS = re.compile(rb"(?m)^Rank \d{1,7}(?: {2,}Rank \d{1,7} *| *\r?\n-{4,})")
_RULE = re.compile(r"-{4,}")
_CELL = re.compile(r"(?P<op>[a-z_]{2,40})\((?P<fields>.*)\)$")
_STACK = re.compile(r"^ *(?P<id>\d{1,9})  (?P<frames>\[\{'name'.*\}\]) *$", re.MULTILINE)
_FIELD = re.compile(
    r"(?:^|, )(?P<name>timestamp_created|input_sizes|output_sizes|input_dtypes|output_dtypes"
    r"|collective_seq_id \| p2p_seq_id|pg_name|pg_description|pg_size|stack_id|state|s)="
)
_PEERS = re.compile(r"(\d{1,7}|None) d=(\d{1,7})")
_MESSAGES = ("send", "recv")
FRAMES = 40


class UnreadableTableError(ValueError):
    """Says why a table cannot be used."""


def looks_like(peek: bytes) -> bool:
    return bool(_LOOKS.search(peek))


def read(text: str) -> dict[int, bytes]:
    """Rank -> its recorder, as JSON. Raises UnreadableTableError, with the reason."""
    header = _HEADER.search(text)
    lines = text[header.start() :].split("\n") if header else []
    spans = [rule.span() for rule in _RULE.finditer(lines[1])] if len(lines) > 1 else []
    ranks = [int(number) for number in re.findall(r"\d+", lines[0])] if lines else []
    if not spans or len(spans) != len(ranks):
        raise UnreadableTableError("a table of torchfrtrace that is cut short")
    stacks = {found["id"]: found["frames"] for found in _STACK.finditer(text)}
    rows = [
        [_entry(line[begin:end].strip(), stacks) for begin, end in spans]
        for line in _of_table(lines[2:])
    ]
    columns = {rank: [row[index] for row in rows if row[index]] for index, rank in enumerate(ranks)}
    entries = [entry for column in columns.values() for entry in column]
    if not any(entry["state"] in ("started", "completed") for entry in entries):
        raise UnreadableTableError(
            "a table of torchfrtrace without any completed entry: it does not show which "
            "collectives are over, as with Gloo; give the dumps themselves"
        )
    if not all("collective_seq_id" in entry for entry in entries):
        _number(rows)
    members = _members(columns)
    return {
        rank: msgspec.json.encode({"version": "2.4", "pg_config": members, "entries": column})
        for rank, column in columns.items()
    }


def _of_table(lines: list[str]) -> Iterator[str]:
    """The rows; below may be another table, of stacks."""
    for line in lines:
        if line.startswith("  stack_id") or _RULE.match(line):
            return
        if "(" in line:
            yield line


def _entry(cell: str, stacks: Mapping[str, str]) -> dict[str, Any]:
    """{} for an empty cell, and for a message in a group whose members are unknown."""
    found = _CELL.match(cell)
    if found is None:
        if cell:
            raise UnreadableTableError("a table of torchfrtrace with entries of an unknown form")
        return {}
    told = _fields(found["fields"])
    message = found["op"] in _MESSAGES
    default = told.get("pg_description", "default_pg") == "default_pg"
    peers = _PEERS.match(told.get("s", ""))
    if message and (not default or peers is None):
        return {}
    way = f" {peers[1]}->{peers[2]}" if peers and found["op"] == "send" else ""
    way = f" {peers[2]}<-{peers[1]}" if peers and found["op"] == "recv" else way
    state = told.get("state", "")
    number = told.get("collective_seq_id | p2p_seq_id", "")
    numbered = {"p2p_seq_id" if message else "collective_seq_id": _int(number)} if number else {}
    group = "0" if default else told.get("pg_name", "0")
    return {
        "profiling_name": f"nccl:{found['op']}{way}",
        "process_group": [group, told.get("pg_description", "default_pg")],
        "is_p2p": message,
        **{name: _list(told[name]) for name in told if name.endswith(("sizes", "dtypes"))},
        **({"collective_seq_id": 0} | numbered if numbered and message else numbered),
        "time_created_ns": _int(told.get("timestamp_created", "0")),
        "state": state,
        "retired": state == "completed",
        "frames": _frames(stacks.get(told.get("stack_id", ""), "[]")),
        "pg_size": _int(told.get("pg_size", "0")),
    }


def _fields(text: str) -> dict[str, str]:
    found = list(_FIELD.finditer(text))
    ends = [one.start() for one in found[1:]] + [len(text)]
    return {one["name"]: text[one.end() : end] for one, end in zip(found, ends, strict=True)}


def _int(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,20}", text):
        raise UnreadableTableError("a table of torchfrtrace with damaged numbers")
    return int(text)


def _list(text: str) -> object:
    try:
        return ast.literal_eval(text[:10_000])
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return []


def _frames(text: str) -> list[dict[str, object]]:
    told = _list(text)
    return [one for one in told if isinstance(one, dict)][:FRAMES] if isinstance(told, list) else []


def _number(rows: list[list[dict[str, Any]]]) -> None:
    """Without --verbose: by rows, where in each row all ranks do the same."""
    for number, row in enumerate(rows, start=1):
        ops = {entry["profiling_name"] for entry in row if entry}
        if len(ops) > 1 or any(entry["is_p2p"] for entry in row if entry):
            raise UnreadableTableError(
                "a table of torchfrtrace without the numbers of the collectives: print it with "
                "`torchfrtrace -j --verbose`, or give the dumps themselves"
            )
        for entry in row:
            if entry:
                entry["collective_seq_id"] = entry["time_created_ns"] = number


def _members(columns: Mapping[int, list[dict[str, Any]]]) -> dict[str, dict[str, str]]:
    """Of the default group, and of others all of whose ranks are in the table."""
    seen: dict[str, set[int]] = {}
    sizes: dict[str, int] = {}
    for rank, column in columns.items():
        for entry in column:
            group = entry["process_group"][0]
            seen.setdefault(group, set()).add(rank)
            sizes[group] = max(sizes.get(group, 0), entry.pop("pg_size"))
    known = {
        group: sorted(ranks) if len(ranks) == sizes[group] or not sizes[group] else None
        for group, ranks in seen.items()
    }
    if sizes.get("0", 0) > len(seen.get("0", ())) and sizes["0"] <= 100_000:
        known["0"] = list(range(sizes["0"]))
    return {
        group: {"name": group, "desc": "", "ranks": str(ranks)}
        for group, ranks in known.items()
        if ranks
    }
