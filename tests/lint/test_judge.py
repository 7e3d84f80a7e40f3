"""What is said: in order, nothing twice, secrets never."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.source.source import LintingMachine, Source, SourceKind
from holdfast.fault import Fault
from holdfast.findings import Evidence, Finding, Place, Status
from holdfast.lint.detect_language import Language
from holdfast.lint.ignore import IgnoreComments
from holdfast.lint.judge import in_order, judge
from holdfast.lint.read import FileSources
from holdfast.lint.walk import LintText


def finding(
    line: int, status: Status = Status.ERROR, *, slug: str = "made-up", quote: str = ""
) -> Finding:
    return Finding(
        code="HOLD699",
        slug=slug,
        status=status,
        summary=f"{status.value} at {line}",
        evidence=(Evidence(quote=quote),) if quote else (),
        place=Place(file="x", line=line),
    )


def test_one_fault_at_one_place_speaks_once_and_gravely() -> None:
    note, error = finding(3, Status.NOTE, quote="a"), finding(3, quote="b")
    (merged,) = in_order([note, error, note])
    assert merged.status is Status.ERROR
    assert [e.quote for e in merged.evidence] == ["b", "a"]
    assert len(in_order([error, finding(3, slug="another")])) == 2


@given(st.permutations([finding(n, slug=s) for n in (1, 2, 10) for s in ("a", "b")]))
def test_the_order_is_that_of_the_text(found: list[Finding]) -> None:
    assert [f.place.line for f in in_order(found) if f.place] == [1, 1, 2, 2, 10, 10]


def test_excerpts_tell_no_secret() -> None:
    fault = Fault(code="HOLD699", slug="made-up")
    fault.lint(lambda _source: [finding(1), finding(9)])
    text = LintText("x", Language.SHELL, "docker run -e HF_TOKEN=hf_abcdefghijklmn image\n")
    piece = FileSources(text, [Source(file="x", kind=SourceKind.SHELL)])
    found = judge(piece, [fault], IgnoreComments(text.text), here=LintingMachine())
    assert [one.excerpt for one in found] == ["docker run -e HF_TOKEN=<redacted> image", ""]


def test_a_finding_tells_no_password_of_an_address() -> None:
    address = "http://me:hunter2@host"
    spoken = Finding(
        code="HOLD699", slug="made-up", status=Status.ERROR, summary=address, reason=address,
        fix=address, evidence=(Evidence(quote=address),), place=Place(file="x", line=1),
    )  # fmt: skip
    fault = Fault(code="HOLD699", slug="made-up")
    fault.lint(lambda _source: [spoken])
    piece = FileSources(
        LintText("x", Language.SHELL, ""), [Source(file="x", kind=SourceKind.SHELL)]
    )
    assert "hunter2" not in repr(judge(piece, [fault], IgnoreComments(""), here=LintingMachine()))


def test_many_findings_on_one_long_line_are_quick_and_only_a_line_feed_ends_one() -> None:
    """To look for secrets in the line once for each of them would take minutes."""
    fault = Fault(code="HOLD699", slug="made-up")
    columns = [Place(file="x", line=2, column=n) for n in range(1, 4000)]
    spoken = [msgspec.structs.replace(finding(2), place=place) for place in columns]
    fault.lint(lambda _source: spoken)
    line = "export NCCL_DEBUG=INFO; " * 20_000
    text = LintText("x", Language.SHELL, f"# \u2028\x0c\n{line}\n")
    piece = FileSources(text, [Source(file="x", kind=SourceKind.SHELL)])
    found = judge(piece, [fault], IgnoreComments(text.text), here=LintingMachine())
    assert len(found) == len(columns)
    assert {one.excerpt for one in found} == {line.rstrip()}


def test_a_rule_sees_the_machine_and_its_launches() -> None:
    seen: list[Source] = []
    fault = Fault(code="HOLD699", slug="made-up")
    fault.lint(lambda source: seen.append(source) or [])  # type: ignore[func-returns-value]
    piece = FileSources(
        LintText("x", Language.PYTHON, ""), [Source(file="x", kind=SourceKind.PYTHON)]
    )
    judge(piece, [fault], IgnoreComments(""), here=LintingMachine(torch="2.9"))
    assert seen[0].here.torch == "2.9"
