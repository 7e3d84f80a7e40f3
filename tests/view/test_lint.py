"""How findings of lint look: excerpts with their mark, the last line, GitHub's annotations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.findings import Evidence, Finding, Place, Status
from holdfast.view import lint
from holdfast.view.lint import Shown

FINDING = Finding(
    code="HOLD613",
    slug="timeout-keyword",
    status=Status.ERROR,
    summary="dist.all_reduce has no timeout=: this raises TypeError",
    evidence=(
        Evidence(quote="import torch", source="train.py", line=1),
        Evidence(quote="torchrun train.py", source="launch.sh", line=3),
    ),
    reason="100 % of ranks fail",
    fix="`work.wait(…)`",
    place=Place(file="train.py", line=12, column=24),
)
LINE = "    dist.all_reduce(x, timeout=5)"


def test_a_paragraph() -> None:
    assert lint.paragraph(Shown(FINDING, LINE), colour=False) == (
        "train.py:12:24: HOLD613 [timeout-keyword] error: "
        "dist.all_reduce has no timeout=: this raises TypeError\n"
        "     |\n"
        "  12 | dist.all_reduce(x, timeout=5)\n"
        "     |                    ^^^^^^^^^\n"
        "     = 100 % of ranks fail\n"
        "     = seen: import torch (line 1)\n"
        "     = seen: torchrun train.py (launch.sh:3)\n"
        "     = help: `work.wait(…)`"
    )


def test_equal_notes_share_a_paragraph() -> None:
    def at(file: str, status: Status = Status.NOTE, said: str = "old name") -> Shown:
        place = Place(file=file, line=3, column=8)
        one = Finding(code="HOLD502", slug="x", status=status, summary=said, place=place)
        return Shown(one, "export NCCL_A=1")

    named = [at(f"run_{n}.sh") for n in range(26)]
    shown = lint.report([*named[:1], at("b.sh", said="other"), *named[1:]], colour=False)
    assert shown.count("old name") == 1
    assert all(shown.count(f"run_{n}.sh:3:8") == 1 for n in range(26))
    assert "= also at: run_1.sh:3:8, run_2.sh:3:8" in shown
    assert max(map(len, shown.splitlines())) <= lint.WIDEST + 6
    grave = [at(f"{n}.sh", Status.WARNING) for n in range(2)]
    assert lint.report(grave, colour=False).count("old name") == 2


def test_colour_only_where_wanted() -> None:
    assert "\033" in lint.paragraph(Shown(FINDING, LINE), colour=True)
    assert "\033" not in lint.paragraph(Shown(FINDING, "x\033[2Jx"), colour=False)


@pytest.mark.parametrize(
    ("line", "column", "shown", "marked"),
    [
        ("export NCCL_DEBUG=INFO  # why", 8, "export NCCL_DEBUG=INFO  # why", "NCCL_DEBUG=INFO"),
        ("torchrun --nnodes=2 x.py", 10, "torchrun --nnodes=2 x.py", "--nnodes=2"),
        ("\tdist.send(x)", 2, "dist.send(x)", "dist.send"),
        ("f(60)", 3, "f(60)", "60"),
        ("f('a b')", 3, "f('a b')", "'a b'"),
        ("short", 90, "short", ""),
    ],
)
def test_the_mark_is_under_the_word(line: str, column: int, shown: str, marked: str) -> None:
    text, mark = lint.excerpt(line, column)
    assert text == shown
    assert text[mark.find("^") :][: mark.count("^")] == marked


@given(st.text(max_size=400).map(lambda t: t.replace("\n", " ")), st.integers(1, 500))
def test_an_excerpt_is_never_wide_and_always_marked(line: str, column: int) -> None:
    shown, mark = lint.excerpt(line, column)
    assert len(shown) <= lint.WIDEST + 2
    assert len(mark) <= lint.WIDEST + 2
    assert "^" in mark


def test_the_environment_has_no_line() -> None:
    finding = Finding(
        code="HOLD501", slug="variable-unread", status=Status.NOTE, summary="no program reads it",
        place=Place(file="", line=4),
    )  # fmt: skip
    told = lint.paragraph(Shown(finding, "NCCL_X=1"), colour=False)
    assert told.startswith("environment: HOLD501 [variable-unread] note: no program reads it\n")
    assert "  NCCL_X=1" in told.replace("|", " ")
    assert "4" not in told
    assert lint.github([finding]) == "::notice title=HOLD501 variable-unread::no program reads it"


def counts(**given: int) -> dict[str, int]:
    return {"error": 0, "warning": 0, "note": 0, **given}


def test_the_last_line() -> None:
    found = counts(error=3, warning=2, note=1)
    assert lint.summary(found, files=2, looked_at=14, unread=1) == (
        "Found 3 errors, 2 warnings, 1 note in 2 files (14 looked at, 1 not readable)."
    )
    assert lint.summary(counts(note=1), files=1, looked_at=1, unread=0) == (
        "Found 1 note in 1 file (1 looked at)."
    )
    assert lint.summary(counts(), files=0, looked_at=3, unread=0) == (
        "All clear: nothing in 3 files."
    )
    assert lint.summary(counts(), files=0, looked_at=3, unread=1, in_part=2) == (
        "Nothing found in 3 files (1 not readable, 2 only in part)."
    )


def test_the_environment_is_no_file() -> None:
    told = lint.summary(counts(error=1), files=0, looked_at=0, unread=0, environment=True)
    assert told == "Found 1 error in the environment."
    told = lint.summary(counts(error=2), files=1, looked_at=3, unread=0, environment=True)
    assert told == "Found 2 errors in 1 file and the environment (3 looked at)."
    told = lint.summary(counts(), files=0, looked_at=0, unread=0, environment=True)
    assert told == "All clear: nothing in the environment."


def test_github_reads_what_we_write() -> None:
    odd = Finding(
        code="HOLD613", slug="timeout-keyword", status=Status.WARNING, summary="a: b, 50 %",
        reason="why\nso", fix="do", place=Place(file="a,b:c.py", line=2, column=3),
    )  # fmt: skip
    assert lint.github([odd]) == (
        "::warning file=a%2Cb%3Ac.py,line=2,col=3,title=HOLD613 timeout-keyword::"
        "a: b, 50 %25%0Awhy%0Aso%0Ahelp: do"
    )
