"""Scores a closed set of blind cases once, and writes its page.

    python -m tools.blind_score SET --cases FILE [--out FOLDER]

FILE holds one JSON object a line, as for bench.explain_cases, with `kind` ('ordinary', 'unusual',
'healthy'), `source` (an address) and `digest` (SHA-256 of `log`) besides. Its own SHA-256 must be
the one written down for SET in proof/blind-closed.tsv when the set was closed. A set that already
has a page is not scored again. proof/blind-protocol.md says how sets are made.
"""

from __future__ import annotations

import argparse
import csv
import datetime as dt
import hashlib
import json
import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.explain_cases import Outcome, explain, judge

ROOT = Path(__file__).parent.parent
CLOSED = ROOT / "proof" / "blind-closed.tsv"
KINDS = ("ordinary", "unusual", "healthy")


class RefusedError(Exception):
    """The set is not the one that was closed, or was scored before."""


class Scored(NamedTuple):
    case: dict[str, Any]
    outcome: Outcome


def digest_of(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def closed_digest(name: str, table: Path = CLOSED) -> str:
    with table.open(newline="") as rows:
        for row in csv.DictReader(rows, delimiter="\t"):
            if row["set"] == name:
                return row["sha256"]
    raise RefusedError(f"set {name} is not closed: {table.name} has no row for it")


def read_set(file: Path, expected: str) -> list[dict[str, Any]]:
    content = file.read_bytes()
    if digest_of(content) != expected:
        raise RefusedError(
            f"{file.name} is not the set that was closed: its SHA-256 is "
            f"{digest_of(content)}, {expected} was written down"
        )
    cases: list[dict[str, Any]] = [json.loads(line) for line in content.decode().splitlines()]
    for case in cases:
        if case["kind"] not in KINDS:
            raise RefusedError(f"{case['source']}: unknown kind {case['kind']!r}")
        if digest_of(case["log"].encode()) != case["digest"]:
            raise RefusedError(f"{case['source']}: the text does not have the digest beside it")
    return cases


def score(cases: Sequence[dict[str, Any]]) -> list[Scored]:
    return [
        Scored(case, judge(case, case["source"], case["label"], explain(["-"], case["log"])))
        for case in cases
    ]


def interval(right: int, total: int) -> tuple[float, float]:
    """per cent: where the share lies with 95 % confidence (Wilson), since a set is small"""
    if not total:
        return 0.0, 100.0
    z, share = 1.96, right / total
    middle = share + z * z / (2 * total)
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    scale = 100 / (1 + z * z / total)
    return max(0.0, (middle - half) * scale), min(100.0, (middle + half) * scale)


def counts(title: str, scored: Sequence[Scored]) -> str:
    outcomes = [one.outcome for one in scored]
    ranks = [o.culprit for o in outcomes if o.culprit is not None]
    total = len(outcomes)
    first = sum(o.place == 1 for o in outcomes)
    low, high = interval(first, total)
    share = f"{100 * first / total:.0f} % ({low:.0f}-{high:.0f})" if total else "-"
    cells = [
        title,
        f"{first}/{total}",
        share,
        f"{sum(1 <= o.place <= 3 for o in outcomes)}/{total}",
        str(sum(o.confidently_wrong for o in outcomes)),
        f"{sum(ranks)}/{len(ranks)}",
    ]
    return f"| {' | '.join(cells)} |"


def summary(scored: Sequence[Scored]) -> list[str]:
    rows = [counts(kind, [s for s in scored if s.case["kind"] == kind]) for kind in KINDS]
    strong = [s for s in scored if s.case["label"] == "strong"]
    return [
        "| kind | first | share | in the first three | confidently wrong | rank right |",
        "|---|---|---|---|---|---|",
        *rows,
        counts("all, strongly labelled", strong),
        counts("all", scored),
    ]


def verdict(outcome: Outcome) -> str:
    if outcome.place == 1:
        return "first, another rank" if outcome.culprit is False else "first"
    if outcome.confidently_wrong:
        return "**confidently wrong**"
    return f"place {outcome.place}" if outcome.place else "**wrong**"


def row(one: Scored) -> str:
    label = one.case["cause"] + "".join(f" or {slug}" for slug in one.case.get("accept", ()))
    answers = ", ".join(f"{d.slug} {d.confidence:.2f}" for d in one.outcome.answers[:3])
    cells = [
        verdict(one.outcome),
        one.case["kind"],
        f"{label} ({one.case['label']})",
        answers or "nothing",
        one.case["source"],
        f"`{one.case['digest'][:16]}`",
    ]
    return f"| {' | '.join(cells)} |"


def page(name: str, digest: str, version: str, scored: Sequence[Scored], day: str) -> str:
    lines = [
        f"# Blind set {name}, {day}",
        "",
        f"{len(scored)} texts of public threads, made, closed and scored as",
        "[blind-protocol.md](blind-protocol.md) says, once, by `python -m tools.blind_score`.",
        f"holdfast was at commit {version}. SHA-256 of the set: `{digest}`.",
        "",
        *summary(scored),
        "",
        "*First*: the label, or a cause that the label accepts, leads (for a healthy log: no",
        "diagnosis); its *share* with the 95 % interval. *Confidently wrong*: another cause leads",
        "with a confidence over 0.8. *Rank*: the thread proves which rank it was. The last column",
        "is the start of the text's SHA-256.",
        "",
        "| outcome | kind | label | answered | thread | text |",
        "|---|---|---|---|---|---|",
        *map(row, scored),
    ]
    return "\n".join(lines) + "\n"


def commit() -> str:
    asked = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


def run(name: str, file: Path, out: Path | None) -> int:
    if out and (earlier := sorted(out.glob(f"blind-{name}-*.md"))):
        raise RefusedError(f"set {name} was scored before: {earlier[0].name}")
    digest = closed_digest(name)
    scored = score(read_set(file, digest))
    day = dt.datetime.now(dt.timezone.utc).strftime("%Y-%m-%d")
    print("\n".join(summary(scored)))
    for one in scored:
        if one.outcome.place != 1 or one.outcome.culprit is False:
            print(row(one))
    if out:
        (out / f"blind-{name}-{day}.md").write_text(page(name, digest, commit(), scored, day))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("set", help="its name in proof/blind-closed.tsv")
    parser.add_argument("--cases", type=Path, required=True)
    parser.add_argument("--out", type=Path, help="folder for the page, proof for the record")
    arguments = parser.parse_args()
    try:
        return run(arguments.set, arguments.cases, arguments.out)
    except RefusedError as refused:
        print(f"not scored: {refused}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    raise SystemExit(main())
