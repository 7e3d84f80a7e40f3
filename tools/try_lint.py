"""Findings of some rules over trees of Python files: to see how a rule does on real code.

python -m tools.try_lint timeout-keyword PATH…
python -m tools.try_lint rank-conditional-code,uneven-inputs --status error PATH…
"""

from __future__ import annotations

import argparse
import collections
import os
import sys
from collections.abc import Iterator

from holdfast import catalogue
from holdfast.findings import Finding
from holdfast.lint.readers import python


def scripts(paths: list[str]) -> Iterator[str]:
    for path in paths:
        if os.path.isfile(path):
            yield path
        for folder, _, names in os.walk(path):
            yield from (os.path.join(folder, n) for n in sorted(names) if n.endswith(".py"))


def findings(file: str, slugs: list[str]) -> list[Finding]:
    with open(file, encoding="utf-8", errors="replace") as script:
        try:
            source = python.read(script.read(), file)
        except (SyntaxError, ValueError):
            return []
    return [found for slug in slugs for found in catalogue.by_slug(slug).ask_lint(source)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rules", help="slugs with commas between, or 'all'")
    parser.add_argument("paths", nargs="+")
    parser.add_argument("--status", help="only these")
    arguments = parser.parse_args()
    everything = [e.fault.slug for e in catalogue.entries() if "lint" in e.fault.faces]
    slugs = everything if arguments.rules == "all" else arguments.rules.split(",")
    counts: collections.Counter[str] = collections.Counter()
    for file in scripts(arguments.paths):
        for found in findings(file, slugs):
            if arguments.status in (None, found.status.value) and found.place:
                where = f"{found.place.file}:{found.place.line}:{found.place.column}"
                print(f"{where}: {found.status.value} [{found.slug}] {found.summary}")
                counts[f"{found.status.value} {found.slug}"] += 1
    print(dict(counts), file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
