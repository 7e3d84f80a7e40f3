"""Tables of cases for a fault's faces.

Each fault has `tests/faults/test_<slug>.py` with one table per face it claims:

    test_check = check_table(
        "port-in-use",
        speaks("error", a_machine(port=…), saying=["pid 4711"]),
        silent(a_machine()),
    )

and, for what `holdfast run` sees of a running job,

    test_run = run_table(
        "rank-killed",
        notices(a_scene(…), ranks=[2], certain=True, saying=["killed by SIGKILL"]),
        overlooks(a_scene()),
    )

and, for what `holdfast explain` finds in the wreckage of one,

    test_explain = explain_table(
        "port-in-use",
        recognises(wreckage("[rank0]: RuntimeError: …"), rank=0, sure=0.9, saying=["29500"]),
        passes_over(wreckage("[rank0]: RuntimeError: something else")),
    )

and, for what `holdfast lint` finds in what people write (tests/analysis/source reads it),

    test_lint = lint_table(
        "timeout-keyword",
        flags("error", python("import torch.distributed as dist\ndist.all_reduce(x, timeout=5)"),
              lines=[2], saying=["async_op"]),
        leaves(python("import torch.distributed as dist\ndist.all_reduce(x)")),
    )

`tests/test_catalogue.py` refuses a fault whose table lacks a case where it must speak, or
one where it must stay silent.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import pytest

from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.machine import MachineFacts
from holdfast.analysis.scene.scene import Scene
from holdfast.analysis.source.source import Source
from holdfast.catalogue import by_slug
from holdfast.findings import Diagnosis, Finding, Status, Verdict
from tests.faults.commands import problem


class Expectation(Protocol):
    """What every kind of case has."""

    @property
    def expected(self) -> str: ...
    @property
    def saying(self) -> tuple[str, ...]: ...
    @property
    def line(self) -> int: ...


def case_id(case: Expectation) -> str:
    """'error: pid 4711 (line 42)': what it must say, and where the case stands."""
    words = f": {case.saying[0]}" if case.saying else ""
    return f"{case.expected}{words} (line {case.line})"


def caller() -> int:
    """The line of the table that makes this case, also where a helper of its file makes it."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_name not in ("<module>", "<genexpr>"):
        frame = frame.f_back
    return frame.f_lineno


class Case(NamedTuple):
    expected: str
    """a status, or 'silent', or 'n/a' (does not apply)"""
    facts: MachineFacts
    saying: tuple[str, ...]
    not_saying: tuple[str, ...]
    line: int

    @property
    def speaks(self) -> bool:
        return self.expected in ("error", "warning", "note")


def speaks(
    status: str, facts: MachineFacts, *, saying: Sequence[str], not_saying: Sequence[str] = ()
) -> Case:
    """The fault must be found with this status, and its finding must contain these words."""
    assert status in ("error", "warning", "note")
    assert saying, "say which words the user must see"
    return Case(status, facts, tuple(saying), tuple(not_saying), caller())


def silent(facts: MachineFacts) -> Case:
    """The fault must be looked for and not found: `ok`."""
    return Case("silent", facts, (), (), caller())


def not_applicable(facts: MachineFacts, *, saying: Sequence[str]) -> Case:
    """The question must not arise, and the reason must contain these words."""
    return Case("n/a", facts, tuple(saying), (), caller())


def skips(facts: MachineFacts, *, saying: Sequence[str]) -> Case:
    """It could not look, and must say why."""
    return Case("skipped", facts, tuple(saying), (), caller())


def words_of(finding: Finding) -> str:
    quotes = " ".join(evidence.quote for evidence in finding.evidence)
    return f"{finding.summary} | {finding.reason} | {finding.fix} | {quotes}"


def check_table(slug: str, *cases: Case) -> Callable[[Case], None]:
    @pytest.mark.parametrize("case", cases, ids=case_id)
    def test_check(case: Case) -> None:
        findings = by_slug(slug).ask_check(case.facts)
        assert findings
        assert {f.slug for f in findings} == {slug}
        if case.expected == "silent":
            assert [f.status for f in findings if f.status is not Status.OK] == [], findings
            return
        if case.expected == "n/a":
            chosen = [f for f in findings if not f.applies]
        else:
            chosen = [f for f in findings if f.status.value == case.expected and f.applies]
        assert chosen, f"expected {case.expected}, got {findings}"
        text = " || ".join(words_of(f) for f in chosen)
        assert [word for word in case.saying if word not in text] == [], text
        assert [word for word in case.not_saying if word in text] == [], text
        if case.speaks:
            assert all(f.reason and f.evidence for f in chosen), (
                "say what was seen and what it means"
            )

    test_check.cases = cases  # type: ignore[attr-defined]
    return test_check


class Sight(NamedTuple):
    """One case of a run face."""

    expected: str
    """'certain', 'notice' or 'silent'"""
    scene: Scene
    ranks: tuple[int, ...] = ()
    victims: tuple[int, ...] | None = None
    fatal: bool = False
    saying: tuple[str, ...] = ()
    not_saying: tuple[str, ...] = ()
    line: int = 0
    hosts: tuple[str, ...] = ()
    paths: tuple[tuple[str, str], ...] = ()

    @property
    def speaks(self) -> bool:
        return self.expected != "silent"


def notices(
    scene: Scene,
    *,
    ranks: Sequence[int],
    certain: bool,
    saying: Sequence[str],
    victims: Sequence[int] | None = None,
    fatal: bool = False,
    hosts: Sequence[str] = (),
    paths: Sequence[tuple[str, str]] = (),
    not_saying: Sequence[str] = (),
) -> Sight:
    """The fault must be seen, on exactly these ranks, nodes and paths, and its sentence contain
    these words."""
    assert saying, "say which words the user must see"
    return Sight(
        "certain" if certain else "notice",
        scene,
        tuple(ranks),
        None if victims is None else tuple(victims),
        fatal,
        tuple(saying),
        tuple(not_saying),
        caller(),
        tuple(hosts),
        tuple(paths),
    )


def overlooks(scene: Scene) -> Sight:
    """The fault must say nothing."""
    return Sight("silent", scene, line=caller())


def told(verdict: Verdict) -> str:
    quotes = " ".join(evidence.quote for evidence in verdict.evidence)
    return f"{verdict.reason} | {verdict.fix} | {quotes}"


def run_table(slug: str, *cases: Sight) -> Callable[[Sight], None]:
    @pytest.mark.parametrize("case", cases, ids=case_id)
    def test_run(case: Sight) -> None:
        heard = list(by_slug(slug).ask_run(case.scene))
        if case.expected == "silent":
            assert heard == []
            return
        assert len(heard) == 1, f"expected one verdict, got {heard}"
        verdict = heard[0]
        assert isinstance(verdict, Verdict), verdict
        assert verdict.slug == slug
        assert verdict.ranks == case.ranks, verdict
        assert (verdict.hosts, verdict.paths) == (case.hosts, case.paths), verdict
        assert verdict.certain == (case.expected == "certain"), verdict
        assert verdict.fatal == case.fatal
        if case.victims is not None:
            assert verdict.victims == case.victims, verdict
        text = told(verdict)
        assert [word for word in case.saying if word not in text] == [], text
        assert [word for word in case.not_saying if word in text] == [], text
        assert verdict.evidence, "say what was seen"

    test_run.cases = cases  # type: ignore[attr-defined]
    return test_run


class Reading(NamedTuple):
    """One case of an explain face."""

    expected: str
    """'sure' (over 0.8), 'unsure' or 'silent'"""
    wreckage: Wreckage
    sure: float = 0.0
    rank: int | None = None
    what: str = ""
    victims: tuple[int, ...] | None = None
    saying: tuple[str, ...] = ()
    not_saying: tuple[str, ...] = ()
    line: int = 0

    @property
    def speaks(self) -> bool:
        return self.expected != "silent"


def recognises(
    wreckage: Wreckage,
    *,
    sure: float,
    saying: Sequence[str],
    rank: int | None = None,
    what: str = "",
    victims: Sequence[int] | None = None,
    not_saying: Sequence[str] = (),
) -> Reading:
    """The fault must be named, this sure of it, with this culprit (None and '': none), and its
    sentence, fix and next command contain these words."""
    assert saying, "say which words the user must see"
    return Reading(
        "sure" if sure > 0.8 else "unsure",
        wreckage,
        sure,
        rank,
        what,
        None if victims is None else tuple(victims),
        tuple(saying),
        tuple(not_saying),
        caller(),
    )


def passes_over(wreckage: Wreckage) -> Reading:
    """The fault must say nothing."""
    return Reading("silent", wreckage, line=caller())


def explained(diagnosis: Diagnosis) -> str:
    return f"{diagnosis.reason} | {diagnosis.fix} | {diagnosis.next}"


def explain_table(slug: str, *cases: Reading) -> Callable[[Reading], None]:
    @pytest.mark.parametrize("case", cases, ids=case_id)
    def test_explain(case: Reading) -> None:
        found = list(by_slug(slug).ask_explain(case.wreckage))
        if case.expected == "silent":
            assert found == []
            return
        assert len(found) == 1, f"expected one diagnosis, got {found}"
        diagnosis = found[0]
        assert isinstance(diagnosis, Diagnosis), diagnosis
        assert diagnosis.slug == slug
        assert diagnosis.confidence == case.sure, diagnosis
        culprit = diagnosis.culprit
        assert (culprit.rank if culprit else None) == case.rank, diagnosis
        assert case.what in (culprit.what if culprit else ""), diagnosis
        if case.victims is not None:
            assert diagnosis.victims == case.victims, diagnosis
        text = explained(diagnosis)
        assert [word for word in case.saying if word not in text] == [], text
        assert [word for word in case.not_saying if word in text] == [], text
        assert diagnosis.evidence, "say what was seen"
        assert diagnosis.fix, "say what to do"
        assert not diagnosis.next or not problem(diagnosis.next), diagnosis.next

    test_explain.cases = cases  # type: ignore[attr-defined]
    return test_explain


class Remark(NamedTuple):
    """One case of a lint face."""

    expected: str
    """'error', 'warning', 'note', 'skipped' or 'silent'"""
    source: Source
    lines: tuple[int, ...] = ()
    saying: tuple[str, ...] = ()
    not_saying: tuple[str, ...] = ()
    line: int = 0

    @property
    def speaks(self) -> bool:
        return self.expected != "silent"


def flags(
    status: str,
    source: Source,
    *,
    lines: Sequence[int],
    saying: Sequence[str],
    not_saying: Sequence[str] = (),
) -> Remark:
    """The fault must be found with this status on exactly these lines, and nothing else of it."""
    assert status in ("error", "warning", "note", "skipped")
    assert saying, "say which words the user must see"
    return Remark(status, source, tuple(lines), tuple(saying), tuple(not_saying), caller())


def leaves(source: Source) -> Remark:
    """The fault must say nothing."""
    return Remark("silent", source, line=caller())


def lint_table(slug: str, *cases: Remark) -> Callable[[Remark], None]:
    @pytest.mark.parametrize("case", cases, ids=case_id)
    def test_lint(case: Remark) -> None:
        found = by_slug(slug).ask_lint(case.source)
        assert {f.slug for f in found} <= {slug}
        where = [(f.status.value, f.place.line if f.place else None) for f in found]
        assert sorted(where) == sorted((case.expected, line) for line in case.lines), found
        text = " || ".join(words_of(f) for f in found)
        assert [word for word in case.saying if word not in text] == [], text
        assert [word for word in case.not_saying if word in text] == [], text
        assert all(f.summary and f.reason for f in found), "seen, meant"
        assert all(f.fix or f.status is Status.SKIPPED for f in found), "to be done"

    test_lint.cases = cases  # type: ignore[attr-defined]
    return test_lint
