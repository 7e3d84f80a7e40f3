"""Tables that are shipped as files, with their date, beside the code that reads them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def rows(module_file: str, name: str, *, columns: int) -> Iterator[list[str]]:
    """The rows of `data/NAME` beside a module, padded to so many columns; comments are left out."""
    text = (Path(module_file).parent / "data" / name).read_text(encoding="utf-8")
    for line in text.splitlines():
        if line and not line.startswith("#"):
            cells = line.split("\t")
            yield cells + [""] * (columns - len(cells))
