"""Compare the tables of variables with a checkout or a library of the program that reads them.

    python tools/refresh_variables.py                             # are the tables well formed?
    python tools/refresh_variables.py --reader NCCL ~/src/nccl    # a checkout
    python tools/refresh_variables.py --reader PyTorch .venv/lib/python3.12/site-packages/torch

It lists names with a prefix of that reader which the program holds and the table does not, and
names of the table which the program does not hold: was it removed (`until VERSION`), renamed (`use
NAME`), or does it come from another part of the program? What a variable does, its default and
since when it is read have to be looked up by a person; then update `# version:` and `# as of`.
`make knowledge` does the same for torch and NCCL, with NCCL's defaults and without constants that
only look like variables; this is for checkouts and for the other readers.

The tables are src/holdfast/analysis/variables/data/*.tsv; analysis/variables/table.py says how they
are written. Exit codes: 0 nothing to do, 1 something differs, 2 a table is not well formed.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from holdfast.analysis.variables.table import Tables, tables

CODE = frozenset({".c", ".cc", ".cpp", ".cu", ".h", ".hpp", ".py", ".so"})
PARAMETER = re.compile(rb'\bNCCL_PARAM\(\s*\w+\s*,\s*"([A-Z0-9_]+)"')
"""NCCL's own macro puts NCCL_ in front of the name"""


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--reader", help="whose names to compare, as the tables call it")
    parser.add_argument("places", nargs="*", type=Path, help="folders and files of that program")
    arguments = parser.parse_args(words)
    try:
        table = tables()
    except ValueError as problem:
        print(problem)
        return 2
    if arguments.reader is None:
        print(f"{len(table.rows)} variables of {len(table.readers)} readers: well formed")
        return 0
    if arguments.reader not in table.readers:
        parser.error(f"--reader: choose from {', '.join(table.readers)}")
    return compare(table, arguments.reader, arguments.places)


def compare(table: Tables, reader: str, places: Iterable[Path]) -> int:
    """Print what differs; 1 if anything does."""
    prefixes = prefixes_of(table, reader)
    held = names_in(places, prefixes)
    known = {row.name for row in table.rows}
    families = tuple(name[:-1] for name in known if name.endswith("*"))
    new = sorted(name for name in held - known if not name.startswith(families))
    mine = (r for r in table.rows if r.reader == reader and not r.until and not r.obsolete)
    lost = sorted(row.name for row in mine if row.name[-1] != "*" and row.name not in held)
    for name in new:
        print(f"not in the table: {name}")
    for name in lost:
        print(f"not in the program: {name}")
    return int(bool(new or lost))


def prefixes_of(table: Tables, reader: str) -> tuple[str, ...]:
    """The judged prefixes that names of this reader begin with."""
    names = [row.name for row in table.rows if row.reader == reader]
    return tuple(p for p in table.version_of_prefix if any(n.startswith(p) for n in names))


def names_in(places: Iterable[Path], prefixes: tuple[str, ...]) -> set[str]:
    """Every word with one of these prefixes in the code and libraries below these places."""
    begins = b"|".join(re.escape(prefix.encode()) for prefix in prefixes)
    # Quoted in a source, closed by a zero byte in a library: macros and constants are neither.
    word = re.compile(rb"(?<=[\"'\0])((?:%s)[A-Z0-9_]+)(?=[\"'\0])" % begins)
    found: set[str] = set()
    for file in files_below(places):
        content = file.read_bytes()
        found |= {match.decode() for match in word.findall(content)}
        found |= {f"NCCL_{name.decode()}" for name in PARAMETER.findall(content)}
    return {name for name in found if name.startswith(prefixes)}


def files_below(places: Iterable[Path]) -> Iterator[Path]:
    for place in places:
        candidates = sorted(place.rglob("*")) if place.is_dir() else [place]
        for path in candidates:
            named = path.suffix in CODE or ".so." in path.name or path == place
            if named and path.is_file() and not path.is_symlink():
                yield path


if __name__ == "__main__":
    sys.exit(main())
