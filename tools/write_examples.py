"""Write src/holdfast/faults/_examples/: what holdfast says when it meets each fault.

Nothing here is written by hand. A fault that `explain` recognises gets a small log, made of the
examples of its log patterns, and the answer to it. The others get what `run` says of a scene, or
`check` of a machine, that the fault's own test sets up; those that `lint` finds get that as well.
Every line comes from the views of the product. `make docs` writes them; a test compares.
"""

from __future__ import annotations

import io
import itertools
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from holdfast import catalogue
from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.scene.scene import Policy, Scene
from holdfast.analysis.source.source import Source, SourceKind
from holdfast.explain.diagnose import Explanation, diagnose
from holdfast.explain.gather import gather_bytes
from holdfast.fault import Fault
from holdfast.findings import Grade, Place, Status, Verdict
from holdfast.run.runs.journal import Journal
from holdfast.run.watch import decide
from holdfast.run.watch.decide import StallHistory
from holdfast.run.watch.reporter import Reporter
from holdfast.view import diagnosis, lint, run_screen, text
from tests.analysis.source.made_sources import text_of
from tests.faults.of import module_of_tests

FOLDER = Path(__file__).parent.parent / "src" / "holdfast" / "faults" / "_examples"
LOG, LINES = "job.log", 8
PYTHON = "3.12.8"
"""in an example that names the Python of this machine"""
DEFAULT = Policy(patience=None, max_restarts=0)


def example(fault: Fault) -> str:
    """The clearest there is: a certain diagnosis, else the first one of any grade, else what is
    said of a running job or of a machine."""
    answers: list[Answer] = []
    best: Answer | None = None
    for one in itertools.chain(_from_logs(fault), _from_wreckage(fault)):
        answers.append(one)
        first = one.report.diagnoses[0]
        sure = first.grade is Grade.CERTAIN
        if first.slug == fault.slug and (sure or best is None):
            best = one
            if sure:
                break
    made = best.drawn() if best else _from_a_job(fault) or _from_check(fault)
    if not made and answers:  # some faults are never more than one answer among others
        made = answers[0].drawn()
    parts = [part for part in (made, _from_nodes(fault), _from_lint(fault)) if part]
    assert parts, f"{fault.slug} has no face that its tests make speak"
    return "\n".join(line.rstrip() for line in "\n\n".join(parts).splitlines()) + "\n"


# --- explain -------------------------------------------------------------------------------------


class Answer(NamedTuple):
    log: list[str]
    """[] where it takes more than a log: several files, recorders, exit codes"""
    report: Explanation

    def drawn(self) -> str:
        told = diagnosis.report(
            self.report.diagnoses,
            failed=self.report.failed,
            anomalies=self.report.anomalies,
            remarks=self.report.remarks,
        )
        if not self.log:
            return f"$ holdfast explain logs/\n{told}"
        shown = "\n".join([f"$ cat {LOG}", *self.log])
        return f"{shown}\n\n$ holdfast explain {LOG}\n{told}"


def _from_logs(fault: Fault) -> Iterator[Answer]:
    for lines in _logs(fault):
        log = "\n".join([*lines, ""]).encode()
        if report := _if_named(gather_bytes({LOG: log}), fault):
            yield Answer(lines, report)


def _from_wreckage(fault: Fault) -> Iterator[Answer]:
    for case in _cases(fault, "test_explain"):
        if report := _if_named(case.wreckage, fault):
            yield Answer([], report)


def _if_named(wreckage: Wreckage, fault: Fault) -> Explanation | None:
    report = diagnose(wreckage, [entry.fault for entry in catalogue.entries()])
    return report if fault.slug in [one.slug for one in report.diagnoses] else None


def _logs(fault: Fault) -> Iterator[list[str]]:
    roots = [s.example for s in fault.log_patterns if s.role is Role.ROOT]
    others = [s.example for s in fault.log_patterns if s.role not in (Role.ROOT, Role.CONTEXT)]
    for line in (*roots, *others):
        yield line.splitlines()
    for together in (roots, roots + others, [s.example for s in fault.log_patterns]):
        if 1 < len(together) <= LINES:
            yield [line for one in together for line in one.splitlines()]
    for case in _cases(fault, "test_explain"):
        if lines := _lines_of(case.wreckage):
            yield lines


def _lines_of(wreckage: Wreckage) -> list[str]:
    """The log that such wreckage may have come from."""
    lines = {(one.line.source, one.line.number): one.line for one in wreckage.sightings}
    return [
        line.text if line.rank is None else f"[rank{line.rank}]: {line.text}"
        for _, line in sorted(lines.items(), key=lambda pair: pair[0])
    ]


# --- run and check -------------------------------------------------------------------------------


def _from_a_job(fault: Fault) -> str:
    for case in _cases(fault, "test_run"):
        for verdict in fault.ask_run(case.scene):
            assert isinstance(verdict, Verdict), verdict
            return f"$ holdfast run train.py\n{_reported(verdict, case.scene)}"
    return ""


def _reported(verdict: Verdict, scene: Scene) -> str:
    """What the reporter of a run writes to its screen, with the action a run takes by default."""
    shown = io.StringIO()
    reporter = Reporter(Journal(None), run_screen.Screen(shown), "", None)
    if scene.outlived:
        reporter.outlived(scene.outlived, scene, steps=0)
    else:
        decision = decide.decide(scene.now, scene, verdict, DEFAULT, StallHistory())
        action = decision.reason if decision.action in ("restart", "stop") else ""
        reporter.judgement(verdict, scene, action=action, steps=0, evidence="")
    return shown.getvalue().rstrip("\n")


def _from_check(fault: Fault) -> str:
    for case in _cases(fault, "test_check"):
        found = [one for one in fault.ask_check(case.facts) if one.status.concern]
        if found:
            worst = max(found, key=lambda one: one.status.concern)
            return f"$ holdfast check\n{text.finding(worst, colour=False)}"
    return ""


def _from_nodes(fault: Fault) -> str:
    for case in _cases(fault, "test_check_nodes"):
        found = [one for one in fault.ask_nodes(case.facts) if one.status.concern]
        if found:
            worst = max(found, key=lambda one: one.status.concern)
            hosts = ",".join(node.name for node in case.facts.nodes)
            return f"$ holdfast check --hosts {hosts}\n{text.finding(worst, colour=False)}"
    return ""


# --- lint ----------------------------------------------------------------------------------------


def _from_lint(fault: Fault) -> str:
    """The most severe finding in the source of its own test."""
    found = [
        (one, case.source)
        for case in _cases(fault, "test_lint")
        for one in fault.ask_lint(case.source)
        if one.status is not Status.OK and one.place is not None
    ]
    if not found:
        return ""
    worst, source = max(found, key=lambda pair: pair[0].status.concern)
    assert worst.place is not None
    shown = lint.Shown(worst, _line(source, worst.place))
    named = worst.place.file or "--env"
    told = lint.paragraph(shown, colour=False)
    # The same text whichever Python writes it.
    told = told.replace(f"Python {platform.python_version()} ", f"Python {PYTHON} ")
    return f"$ holdfast lint {named}\n{told}"


def _line(source: Source, place: Place) -> str:
    """A line of what was read; of the environment the variable; '' where it could not be read."""
    if source.kind is SourceKind.ENVIRONMENT:
        return next(f"{one.name}={one.value}" for one in source.settings if one.place == place)
    return "" if source.refused else text_of(source).splitlines()[place.line - 1]


def _cases(fault: Fault, table: str) -> Iterator[Any]:
    """The cases of the fault's own test in which it speaks."""
    tables = [made for name, made in vars(module_of_tests(fault)).items() if name.startswith(table)]
    for case in (case for made in tables for case in getattr(made, "cases", ())):
        if case.speaks:
            yield case


def everything() -> dict[str, str]:
    """File name -> text, for all examples."""
    return {f"{entry.fault.slug}.txt": example(entry.fault) for entry in catalogue.entries()}


def main() -> int:
    wanted = everything()
    FOLDER.mkdir(parents=True, exist_ok=True)
    for stale in {path.name for path in FOLDER.glob("*.txt")} - set(wanted):
        (FOLDER / stale).unlink()
    for name, content in wanted.items():
        (FOLDER / name).write_text(content)
    print(f"examples: {len(wanted)} files in {FOLDER}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
