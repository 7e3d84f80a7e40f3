"""Tables of cases for a fault's faces.

Each fault has `tests/faults/test_<slug>.py` with one table per face it claims:

    test_foresee = foresee_table(
        "port-in-use",
        speaks("error", a_machine(port=…), saying=["pid 4711"]),
        silent(a_machine()),
    )

and, for what `holdfast run` sees of a running job,

    test_notice = notice_table(
        "rank-killed",
        notices(a_scene(…), ranks=[2], certain=True, saying=["killed by SIGKILL"]),
        overlooks(a_scene()),
    )

and, for what `holdfast explain` finds in the wreckage of one,

    test_recognise = recognise_table(
        "port-in-use",
        recognises(wreckage("[rank0]: RuntimeError: …"), rank=0, sure=0.9, saying=["29500"]),
        passes_over(wreckage("[rank0]: RuntimeError: something else")),
    )

and, for what `holdfast lint` finds in what people write (tests/source/made.py reads it),

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

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest

from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.machine import MachineFacts
from holdfast.analysis.scene.scene import Scene
from holdfast.analysis.source.source import Source
from holdfast.catalogue import by_slug
from holdfast.findings import Diagnosis, Finding, Status, Verdict


class Case(NamedTuple):
    expected: str
    """a status, or 'silent', or 'n/a' (does not apply)"""
    facts: MachineFacts
    saying: tuple[str, ...]
    not_saying: tuple[str, ...]

    @property
    def speaks(self) -> bool:
        return self.expected in ("error", "warning", "note")


def speaks(
    status: str, facts: MachineFacts, *, saying: Sequence[str], not_saying: Sequence[str] = ()
) -> Case:
    """The fault must be found with this status, and its finding must contain these words."""
    assert status in ("error", "warning", "note")
    assert saying, "say which words the user must see"
    return Case(status, facts, tuple(saying), tuple(not_saying))


def silent(facts: MachineFacts) -> Case:
    """The fault must be looked for and not found: `ok`."""
    return Case("silent", facts, (), ())


def not_applicable(facts: MachineFacts, *, saying: Sequence[str]) -> Case:
    """The question must not arise, and the reason must contain these words."""
    return Case("n/a", facts, tuple(saying), ())


def skips(facts: MachineFacts, *, saying: Sequence[str]) -> Case:
    """It could not look, and must say why."""
    return Case("skipped", facts, tuple(saying), ())


def words_of(finding: Finding) -> str:
    quotes = " ".join(evidence.quote for evidence in finding.evidence)
    return f"{finding.summary} | {finding.reason} | {finding.fix} | {quotes}"


def foresee_table(slug: str, *cases: Case) -> Callable[[Case], None]:
    @pytest.mark.parametrize("case", cases, ids=lambda case: case.expected)
    def test_foresee(case: Case) -> None:
        findings = by_slug(slug).look_at(case.facts)
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

    test_foresee.cases = cases  # type: ignore[attr-defined]
    return test_foresee


class Sight(NamedTuple):
    """One case of a notice face."""

    expected: str
    """'certain', 'notice' or 'silent'"""
    scene: Scene
    ranks: tuple[int, ...] = ()
    victims: tuple[int, ...] | None = None
    fatal: bool = False
    saying: tuple[str, ...] = ()
    not_saying: tuple[str, ...] = ()

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
    not_saying: Sequence[str] = (),
) -> Sight:
    """The fault must be seen, on exactly these ranks, and its sentence contain these words."""
    assert saying, "say which words the user must see"
    return Sight(
        "certain" if certain else "notice",
        scene,
        tuple(ranks),
        None if victims is None else tuple(victims),
        fatal,
        tuple(saying),
        tuple(not_saying),
    )


def overlooks(scene: Scene) -> Sight:
    """The fault must say nothing."""
    return Sight("silent", scene)


def told(verdict: Verdict) -> str:
    quotes = " ".join(evidence.quote for evidence in verdict.evidence)
    return f"{verdict.reason} | {verdict.fix} | {quotes}"


def notice_table(slug: str, *cases: Sight) -> Callable[[Sight], None]:
    @pytest.mark.parametrize("case", cases, ids=lambda case: case.expected)
    def test_notice(case: Sight) -> None:
        heard = [v for face in by_slug(slug).perceptions if (v := face(case.scene)) is not None]
        if case.expected == "silent":
            assert heard == []
            return
        assert len(heard) == 1, f"expected one verdict, got {heard}"
        verdict = heard[0]
        assert verdict.slug == slug
        assert verdict.ranks == case.ranks, verdict
        assert verdict.certain == (case.expected == "certain"), verdict
        assert verdict.fatal == case.fatal
        if case.victims is not None:
            assert verdict.victims == case.victims, verdict
        text = told(verdict)
        assert [word for word in case.saying if word not in text] == [], text
        assert [word for word in case.not_saying if word in text] == [], text
        assert verdict.evidence, "say what was seen"

    test_notice.cases = cases  # type: ignore[attr-defined]
    return test_notice


class Reading(NamedTuple):
    """One case of a recognise face."""

    expected: str
    """'sure' (over 0.8), 'unsure' or 'silent'"""
    wreckage: Wreckage
    sure: float = 0.0
    rank: int | None = None
    what: str = ""
    victims: tuple[int, ...] | None = None
    saying: tuple[str, ...] = ()
    not_saying: tuple[str, ...] = ()

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
    """The fault must be named, this sure of it, with this culprit (None and '': nobody), and its
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
    )


def passes_over(wreckage: Wreckage) -> Reading:
    """The fault must say nothing."""
    return Reading("silent", wreckage)


def explained(diagnosis: Diagnosis) -> str:
    return f"{diagnosis.reason} | {diagnosis.fix} | {diagnosis.next}"


def recognise_table(slug: str, *cases: Reading) -> Callable[[Reading], None]:
    @pytest.mark.parametrize("case", cases, ids=lambda case: case.expected)
    def test_recognise(case: Reading) -> None:
        faces = by_slug(slug).recognitions
        found = [d for face in faces if (d := face(case.wreckage)) is not None]
        if case.expected == "silent":
            assert found == []
            return
        assert len(found) == 1, f"expected one diagnosis, got {found}"
        diagnosis = found[0]
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

    test_recognise.cases = cases  # type: ignore[attr-defined]
    return test_recognise


class Remark(NamedTuple):
    """One case of a lint face."""

    expected: str
    """'error', 'warning', 'note' or 'silent'"""
    source: Source
    lines: tuple[int, ...] = ()
    saying: tuple[str, ...] = ()
    not_saying: tuple[str, ...] = ()

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
    assert status in ("error", "warning", "note")
    assert saying, "say which words the user must see"
    return Remark(status, source, tuple(lines), tuple(saying), tuple(not_saying))


def leaves(source: Source) -> Remark:
    """The fault must say nothing."""
    return Remark("silent", source)


def lint_table(slug: str, *cases: Remark) -> Callable[[Remark], None]:
    @pytest.mark.parametrize("case", cases, ids=lambda case: case.expected)
    def test_lint(case: Remark) -> None:
        found = by_slug(slug).inspect(case.source)
        assert {f.slug for f in found} <= {slug}
        where = [(f.status.value, f.place.line if f.place else None) for f in found]
        assert sorted(where) == sorted((case.expected, line) for line in case.lines), found
        text = " || ".join(words_of(f) for f in found)
        assert [word for word in case.saying if word not in text] == [], text
        assert [word for word in case.not_saying if word in text] == [], text
        assert all(f.summary and f.reason and f.fix for f in found), "seen, meant, to be done"

    test_lint.cases = cases  # type: ignore[attr-defined]
    return test_lint
