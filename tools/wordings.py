"""Texts that patterns of `explain` rely on, looked up in the programs that print them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from holdfast.analysis.versions import release

TABLE = Path(__file__).parent / "data" / "wordings.tsv"


class Wording(NamedTuple):
    part: str
    since: str
    until: str
    text: str


def rows() -> list[Wording]:
    lines = TABLE.read_text("utf-8").splitlines()
    return [Wording(*line.split("\t")) for line in lines if line and not line.startswith("#")]


def missing(part: str, version: str, contents: Sequence[bytes]) -> list[str]:
    """A sentence for each text of this part that this version should hold and does not."""
    here = release(version)
    return [
        f"text {row.text!r} is not in it: was it reworded?"
        for row in rows()
        if row.part == part
        and release(row.since) <= here
        and (not row.until or here <= release(row.until))
        and not any(row.text.encode() in content for content in contents)
    ]
