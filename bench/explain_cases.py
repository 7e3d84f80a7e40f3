"""How often `holdfast explain` is right on labelled failures.

    python -m bench.explain_cases --cases FILE --wrecks DIR [--show]

FILE holds one JSON object a line: `log` (given on stdin), `cause` (a slug), `culprit`, `label`
('strong', 'moderate', 'weak'). DIR holds folders with logs and dumps and a truth.json (`cause`,
`accept`, `culprit`). Where a folder has flight-recorder dumps, torchfrtrace is asked as well.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from holdfast import catalogue
from holdfast.explain.diagnose import diagnose
from holdfast.explain.gather import gather
from holdfast.findings import Culprit, Diagnosis, Grade

HEALTHY = "healthy"


class Outcome(NamedTuple):
    name: str
    cause: str
    label: str
    place: int
    """of the right cause among the answers, from 1; 0 when it is not there"""
    confidently_wrong: bool
    culprit: bool | None
    """whether the right rank was named; None where the truth names no rank"""
    answers: tuple[Diagnosis, ...]


def explain(paths: list[str], log: str = "") -> tuple[Diagnosis, ...]:
    wreckage = gather(paths, stdin=io.BytesIO(log.encode()))
    return diagnose(wreckage, (entry.fault for entry in catalogue.entries())).diagnoses


def judge(truth: dict[str, Any], name: str, label: str, answers: tuple[Diagnosis, ...]) -> Outcome:
    right = {truth["cause"], *truth.get("accept", ())}
    slugs = [one.slug for one in answers] or [HEALTHY]
    place = next((n for n, slug in enumerate(slugs, start=1) if slug in right), 0)
    sure = bool(answers) and answers[0].grade is Grade.CERTAIN
    culprit = answers[0].culprit if answers else None
    return Outcome(
        name=name,
        cause=truth["cause"],
        label=label,
        place=place,
        confidently_wrong=sure and place != 1,
        culprit=_named(truth.get("culprit"), culprit) if answers else None,
        answers=answers,
    )


def _named(truth: str | None, culprit: Culprit | None) -> bool | None:
    """Only ranks are compared; other culprits have no canonical name."""
    ranks = re.match(r"rank (\d+)", truth or "")
    if not ranks:
        return None
    return culprit is not None and culprit.rank == int(ranks[1])


def of_cases(file: Path) -> Iterator[Outcome]:
    for line in file.read_text().splitlines():
        case = json.loads(line)
        yield judge(case, case["id"], case.get("label", "strong"), explain(["-"], case["log"]))


def of_wrecks(folder: Path) -> Iterator[tuple[Outcome, str]]:
    for wreck in sorted(path for path in folder.iterdir() if (path / "truth.json").exists()):
        truth = json.loads((wreck / "truth.json").read_text())
        files = [str(f) for f in sorted(wreck.iterdir()) if f.name != "truth.json"]
        yield judge(truth, wreck.name, "strong", explain(files)), torchfrtrace(wreck)


def torchfrtrace(wreck: Path) -> str:
    """What torch's own analyser says about the dumps of a folder; '-' where there are none."""
    program = shutil.which("torchfrtrace", path=str(Path(sys.executable).parent))
    dumps = {m[1]: f for f in wreck.iterdir() if (m := re.search(r"(?:fr|rank)_(\d+)$", f.name))}
    if not dumps or not program:
        return "-" if not dumps else "not installed"
    with tempfile.TemporaryDirectory() as folder:
        for rank, file in dumps.items():
            shutil.copy(file, Path(folder) / f"fr_{rank}")
        done = subprocess.run(
            [program, folder, "-p", "fr_", "--allow-incomplete-ranks"],
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
    said = [
        line.strip()
        for line in (done.stdout + done.stderr).splitlines()
        if re.search(r"Culprit|missing|mismatch|[Ee]rror", line)
    ]
    return said[0][:110] if said else "nothing decided"


def score(outcomes: list[Outcome], title: str) -> None:
    if not outcomes:
        return
    named = [o.culprit for o in outcomes if o.culprit is not None]
    print(
        f"{title}: {sum(o.place == 1 for o in outcomes)}/{len(outcomes)} first, "
        f"{sum(1 <= o.place <= 3 for o in outcomes)}/{len(outcomes)} in the first three, "
        f"{sum(o.confidently_wrong for o in outcomes)} confidently wrong, "
        f"rank right in {sum(named)}/{len(named)}"
    )


def show(outcome: Outcome, beside: str = "") -> None:
    answers = ", ".join(f"{d.slug} {d.confidence:.2f}" for d in outcome.answers) or "nothing"
    mark = "ok   " if outcome.place == 1 else f"#{outcome.place or '-'}   "
    mark = "WRONG" if outcome.confidently_wrong else mark
    who = {True: "", False: " (other rank)", None: ""}[outcome.culprit]
    line = f"{mark} {outcome.name} [{outcome.label}] {outcome.cause}: {answers}{who}"
    print(line + (f" | torchfrtrace: {beside}" if beside else ""))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--cases", type=Path)
    parser.add_argument("--wrecks", type=Path)
    parser.add_argument("--show", action="store_true", help="every case, not only the wrong ones")
    arguments = parser.parse_args()
    if arguments.cases:
        outcomes = list(of_cases(arguments.cases))
        for outcome in outcomes:
            if arguments.show or outcome.place != 1:
                show(outcome)
        for label in Counter(o.label for o in outcomes):
            score([o for o in outcomes if o.label == label], f"cases, {label}")
        score(outcomes, "cases, all")
    if arguments.wrecks:
        pairs = list(of_wrecks(arguments.wrecks))
        for outcome, beside in pairs:
            show(outcome, beside)
        score([outcome for outcome, _ in pairs], "wrecks")


if __name__ == "__main__":
    main()
