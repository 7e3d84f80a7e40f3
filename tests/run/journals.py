"""Journal records for tests, written as short as they are in a file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from holdfast.analysis.job.journal_records import RECORDS, JournalRecord, decode, kind_of
from holdfast.text import printable

FIELDS = {
    kind_of(record): {field.encode_name for field in msgspec.structs.fields(record)}
    for record in RECORDS
}


def record(kind: str, **fields: Any) -> JournalRecord:
    """As it is decoded from a journal; a field that nobody writes is refused."""
    assert fields.keys() <= FIELDS[kind], f"{kind} has no {fields.keys() - FIELDS[kind]}"
    decoded = decode(msgspec.json.encode({"kind": kind, **fields}))
    assert decoded is not None, (kind, fields)
    return decoded


def as_written(records: Iterable[JournalRecord]) -> list[dict[str, Any]]:
    return [printable(msgspec.to_builtins(one)) for one in records]
