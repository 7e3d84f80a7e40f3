"""Compare the table of releases with PyPI, and bring it up to date.

    python tools/refresh_releases.py            # says what PyPI has and the table lacks
    python tools/refresh_releases.py --write    # adds it, with today's date

The table is src/holdfast/analysis/source/launch/data/releases.tsv. Nothing is ever taken out of it:
some releases of NCCL are tags of github.com/NVIDIA/nccl only, and torch 1.8.2 is on PyTorch's own
index. A minor version is added once it has a successor, and not while it may still get patches.
NCCL has tags that never came to PyPI: compare a new minor version with its tags by hand.

Exit codes: 0 the table is up to date, 1 it lacks something (or lacked, with --write), 2 PyPI could
not be asked about some package; what could be asked is still compared.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import re
import sys
import urllib.request
from pathlib import Path

from holdfast.analysis.source import data_file
from holdfast.analysis.source.launch import releases

TABLE = Path(releases.__file__).parent / "data" / "releases.tsv"
SECONDS = 30

Minors = dict[tuple[int, int], set[int]]


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="add to the table what it lacks")
    arguments = parser.parse_args()
    table = read_table()
    found: dict[str, Minors] = {}
    unreachable = []
    for package, name in releases.PACKAGES.items():
        try:
            published = ask_pypi(package)
        except OSError as problem:
            unreachable.append(package)
            print(f"could not ask PyPI about {package}: {problem}")
            continue
        for minor, patches in by_minor(published).items():
            found.setdefault(name, {}).setdefault(minor, set()).update(patches)
    missing = {name: lacking(minors, table.get(name, {})) for name, minors in found.items()}
    for name, minors in missing.items():
        for (major, second), patches in sorted(minors.items()):
            print(f"{name} {major}.{second}: not in the table: {sorted(patches)}")
    lacks = any(missing.values())
    if arguments.write and lacks:
        write_table(table, missing)
        print(f"wrote {TABLE}; compare new minor versions of nccl with its tags")
    elif not lacks and found:
        print(f"up to date: {', '.join(sorted(found))}")
    return 2 if unreachable else int(lacks)


def ask_pypi(package: str) -> list[str]:
    """Every version that has files. Raises OSError where PyPI cannot be reached."""
    url = f"https://pypi.org/pypi/{package}/json"
    with urllib.request.urlopen(url, timeout=SECONDS) as answer:
        listed = json.load(answer)["releases"]
    return [version for version, files in listed.items() if files]


def by_minor(versions: list[str]) -> Minors:
    """Plain releases only, by minor version, without the newest one: it may get patches yet."""
    minors: Minors = {}
    for version in versions:
        if numbers := re.fullmatch(r"(\d+)\.(\d+)\.(\d+)(?:\.post\d+)?", version):
            minors.setdefault((int(numbers[1]), int(numbers[2])), set()).add(int(numbers[3]))
    if minors:
        del minors[max(minors)]
    return minors


def lacking(published: Minors, known: Minors) -> Minors:
    """What the table lacks from its oldest minor version on."""
    oldest = min(known, default=(0, 0))
    return {
        minor: patches - known.get(minor, set())
        for minor, patches in published.items()
        if minor >= oldest and patches - known.get(minor, set())
    }


def read_table() -> dict[str, Minors]:
    table: dict[str, Minors] = {}
    for name, minor, patches in data_file.rows(releases.__file__, TABLE.name, columns=3):
        major, _, second = minor.partition(".")
        table.setdefault(name, {})[int(major), int(second)] = set(map(int, patches.split()))
    return table


def write_table(table: dict[str, Minors], missing: dict[str, Minors]) -> None:
    today = dt.datetime.now(dt.timezone.utc).date().isoformat()
    comments = [line for line in TABLE.read_text().splitlines() if line.startswith("#")]
    lines = [f"# as of {today}" if line.startswith("# as of ") else line for line in comments]
    for name, minors in table.items():
        for minor, patches in missing.get(name, {}).items():
            minors.setdefault(minor, set()).update(patches)
        for (major, second), patches in sorted(minors.items()):
            lines.append(f"{name}\t{major}.{second}\t{' '.join(map(str, sorted(patches)))}")
    TABLE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
