"""The screen: calm, plain without colour, and safe against what it quotes."""

from __future__ import annotations

import io
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import catalogue
from holdfast.analysis.machine import Smoke, SmokeRung, SmokeStage
from holdfast.fault import Fault
from holdfast.findings import Evidence
from holdfast.view import text
from tests.faults.machines import a_machine, a_plan

FAULT = Fault(code="HOLD199", slug="made-up")
ERROR = FAULT.error(
    "port 1 is taken",
    reason="the store cannot listen there",
    fix="stop pid 7",
    evidence=[Evidence(quote="pid 7 listens", source="/proc/net/tcp", line=3, host="node-a")],
)
EVERY_KIND = [
    FAULT.ok("fine"),
    FAULT.skipped("not permitted"),
    FAULT.does_not_apply("one machine"),
    FAULT.note("by the way", reason="harmless"),
    FAULT.warning("careful", reason="may bite", fix="do this"),
    ERROR,
]


def test_a_finding_says_what_where_why_and_what_to_do() -> None:
    assert text.finding(ERROR, colour=False) == (
        "error[HOLD199] made-up: port 1 is taken\n"
        "  --> node-a: pid 7 listens (/proc/net/tcp:3)\n"
        "  = the store cannot listen there\n"
        "help: stop pid 7"
    )


def test_the_worst_comes_first_and_what_passed_only_when_asked() -> None:
    brief = text.report(EVERY_KIND, verbose=False, colour=False)
    heads = [line.split(" ")[0] for line in brief.splitlines() if "[HOLD" in line]
    assert heads == ["error[HOLD199]", "warning[HOLD199]", "note[HOLD199]", "skipped[HOLD199]"]
    whole = text.report(EVERY_KIND, verbose=True, colour=False)
    assert "ok[HOLD199] made-up: fine" in whole
    assert "skipped[HOLD199] made-up: does not apply: one machine" in whole


def test_counts_and_summary() -> None:
    counts = text.count(EVERY_KIND)
    assert counts == {
        "ok": 1, "note": 1, "warning": 1, "error": 1, "skipped": 1, "not_applicable": 1,
    }  # fmt: skip
    assert (
        text.summary(counts, 0.42)
        == "1 passed, 1 error, 1 warning, 1 note, 1 skipped, 1 not applicable in 0.4s"
    )


def test_colour_only_touches_the_head() -> None:
    coloured = text.finding(ERROR, colour=True)
    assert coloured.startswith("\033[1;31merror[HOLD199]\033[0m made-up")
    assert coloured.count("\033") == 2


def test_a_pipe_gets_no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not text.wants_colour(io.StringIO())

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert text.wants_colour(Terminal())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not text.wants_colour(Terminal())


def test_a_value_as_long_as_a_file_is_cut() -> None:
    shown = text.finding(FAULT.note("x" * 100_000, reason="long"), colour=False)
    assert "x…\n" in shown
    assert len(shown) < 1100


@given(st.text(st.characters()))
def test_nothing_quoted_can_drive_the_terminal(quote: str) -> None:
    shown = text.finding(
        FAULT.error(quote, reason=quote, fix=quote, evidence=[Evidence(quote=quote)]), colour=False
    )
    assert len(shown.splitlines()) == (4 if quote else 2)
    assert shown.encode()
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in shown.replace("\n", ""))


def test_the_banner_says_what_was_looked_at() -> None:
    line = text.banner(a_machine(a_plan(nproc=8, min_nodes=2, max_nodes=4)))
    assert line == (
        "node-a: Python 3.11.7, torch 2.13.0 (CUDA 13.0), "
        "2 to 4 machines with 8 ranks each, port 29500"
    )


def test_the_smoke_table_shows_stages_and_ladder() -> None:
    smoke = Smoke(
        world=4,
        ranks=(),
        stages=(
            SmokeStage(name="gloo", status="ok", seconds=1.5, reason="", cause=""),
            SmokeStage(name="nccl", status="skipped", seconds=0, reason="no GPU", cause=""),
        ),
        ladder=(SmokeRung(stage="gloo", size=1 << 26, seconds=0.1, correct=True, bandwidth=1.0e9),),
    )
    table = text.smoke_table(a_machine(smoke=smoke))
    assert "gloo      ok         1.50 s" in table
    assert "all_reduce   64 MiB     100.00 ms    1.000 GB/s  sum right" in table
    assert "nccl      skipped    0.00 s  no GPU" in table
    assert text.smoke_table(a_machine()) == ""


LONG = FAULT.warning(
    "this sentence is longer than the terminal is wide, so it takes more than one line",
    reason="what it means takes more than one line as well, as everything here does",
    fix="run `holdfast check --only a-fault --deadline 10`, or leave it as it is for now",
    evidence=[Evidence(quote="evidence " * 12, source="/proc/somewhere")],
)


def test_prose_is_wrapped_and_what_is_copied_is_not() -> None:
    lines = text.finding(LONG, colour=False, width=60).splitlines()
    assert [line for line in lines if len(line) > 60] == [
        f"  --> : {'evidence ' * 12} (/proc/somewhere)"
    ]
    assert "help: run `holdfast check --only a-fault --deadline 10`, or" in lines
    assert sum(line.startswith("    ") for line in lines) == 2


def test_wrapping_loses_no_word() -> None:
    plain = text.finding(LONG, colour=False, width=10_000)
    for width in (60, 80, 109):
        assert text.finding(LONG, colour=False, width=width).split() == plain.split()


def test_colour_changes_the_head_only() -> None:
    coloured = text.finding(LONG, colour=True, width=60).splitlines()
    plain = text.finding(LONG, colour=False, width=60).splitlines()
    assert coloured[1:] == plain[1:]
    assert len(coloured[0]) > len(plain[0])


def test_a_page_shows_its_limits_and_its_relatives() -> None:
    page = catalogue.search("rank-stuck")[0]
    shown = text.page(page)
    assert page.limits
    assert f"Known limits\n{textwrap.indent(page.limits, '  ')}" in shown
    assert [f"holdfast explain {slug}" in shown for slug in page.related] == [True] * len(
        page.related
    )
    assert page.related


def test_foreign_text_cannot_turn_a_line_round() -> None:
    assert text.harmless("rank 2\u202e killed\x1b[2J\nrank 3\u200b") == (
        r"rank 2\u202e killed�[2J rank 3\u200b"
    )
