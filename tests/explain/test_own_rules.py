"""From rules and logs to what `explain` says, through the real search."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import catalogue
from holdfast.analysis.job.journal_records import EndRecord, LaunchRecord, RankRecord, RuleRecord
from holdfast.analysis.job.run_paths import RunPaths
from holdfast.analysis.rules.rule import NO_RULES, RuleSet, decode, parse
from holdfast.explain.diagnose import Explanation, diagnose
from holdfast.explain.gather import RuleChoice, gather

LOG = """\
[rank0]: 2026-11-16 10:00:00,000 step 1 loss=3
[rank1]: 2026-11-16 10:00:01,000 step 1 loss=300
[rank1]: 2026-11-16 10:10:00,000 step 2 loss=3000
[rank0]: 2026-11-16 10:20:00,000 the end
"""
KILLED = "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use\n"  # noqa: E501


def rules(**tables: dict[str, Any]) -> RuleSet:
    return parse({name: {"means": f"{name}!", **body} for name, body in tables.items()}, "f")


def explain(text: str, given: RuleSet) -> Explanation:
    wreckage = gather(["-"], stdin=io.BytesIO(text.encode()), rules=RuleChoice(given))
    return diagnose(wreckage, [entry.fault for entry in catalogue.entries()])


def said(answer: Explanation) -> list[tuple[str, str]]:
    return [(one.rule, one.reason) for one in answer.rules]


def test_one_search_for_many_rules() -> None:
    answer = explain(
        LOG,
        rules(
            loss={"pattern": r"loss=(\d+)", "above": 100},
            ends={"pattern": "^the end", "severity": "note", "fix": "nothing"},
            rank_one={"pattern": "step", "ranks": [1]},
            throughput={"pattern": "tok/s", "within": 60},
            recur={"pattern": r"^step \d", "every": 300},
            recur_each={"pattern": r"^step \d", "every": 700, "ranks": "each"},
            in_time={"pattern": "loss=", "within": 60, "every": 3000},
            elsewhere={"pattern": "segfault"},
        ),
    )
    assert said(answer) == [
        ("loss", "loss!: 3000 is above 100 (2 lines of rank 1)"),
        ("ends", "ends!: one line of rank 0"),
        ("rank_one", "rank_one!: 2 lines of rank 1"),
        (
            "throughput",
            "throughput!: no line in the first 20 minutes, and it must come within 60 s",
        ),
        ("recur", "recur!: no line for 10 minutes, and 5 min are allowed"),
        ("recur_each", "recur_each!: no line of rank 0 for 20 minutes, and 700 s are allowed"),
    ]
    assert [(one.quote, one.line, one.rank) for one in answer.rules[1].evidence] == [
        ("the end", 4, 0)
    ]
    assert not answer.failed  # warnings and notes are context
    assert answer.diagnoses == ()


def test_a_line_start_is_not_anywhere() -> None:
    answer = explain("[rank0]: note: loss is fine\n", rules(loss={"pattern": "^loss"}))
    assert answer.rules == ()


@pytest.mark.parametrize(
    ("severity", "first"),
    [("note", "port-in-use"), ("warning", "port-in-use"), ("error", "port-in-use"), ("cause", "r")],
)
def test_only_a_cause_comes_before_a_certain_answer(severity: str, first: str) -> None:
    own = rules(r={"pattern": "spilled", "severity": severity})
    answer = explain("the wine is spilled\n" + KILLED, own)
    assert answer.diagnoses[0].slug == first
    named = [one.slug for one in answer.diagnoses if one.code == "OWN"]
    assert named == (["r"] if severity in ("error", "cause") else [])
    assert [one.rule for one in answer.rules] == ["r"]


def test_an_error_of_the_users_own_fails_a_log_that_is_else_fine() -> None:
    answer = explain("[rank3]: spilled\n", rules(r={"pattern": "spilled", "severity": "error"}))
    (found,) = answer.diagnoses
    assert (found.code, found.slug, found.grade.value) == ("OWN", "r", "likely")
    assert found.culprit
    assert found.culprit.rank == 3
    assert answer.failed


def test_records_of_json_are_searched_too() -> None:
    log = '{"time":"2026-11-16T10:00:00Z","rank":1,"msg":"loss=300 now"}\n' * 2
    answer = explain(log, rules(loss={"pattern": r"^loss=(\d+)", "above": 100}))
    assert said(answer) == [("loss", "loss!: 300 is above 100 (2 lines of rank 1)")]


def a_run(folder: Path, own: RuleSet, *, code: int) -> RunPaths:
    paths = RunPaths(str(folder), "run")
    os.makedirs(paths.rank(0, 0))
    Path(paths.marker).write_text('{"run":"run","started":1.0}')
    Path(paths.rules).write_bytes(msgspec.json.encode(own))
    Path(paths.stdout(0, 0)).write_text("loss=5\nloss=500\n")
    records = [
        LaunchRecord(t=1.0, world=1),
        RankRecord(t=1.0, rank=0, pid=7),
        RuleRecord(t=2.0, rule="tok", what="missing", reason="tok!: no rank has written it"),
        RuleRecord(t=2.0, rule="step", what="stopped", reason="step!: no rank has written it"),
        RuleRecord(t=9.0, rule="step", what="back", reason="a rank wrote it again"),
        RuleRecord(t=9.0, rule="loss", severity="error", what="number", ranks=(0,),
                   reason="loss!: 500 is above 100", quote="loss=500", count=1),
        RankRecord(t=9.0, rank=0, pid=7, what="exited", code=code),
        EndRecord(t=9.0, exit_code=code),
    ]  # fmt: skip
    Path(paths.journal).write_bytes(b"".join(msgspec.json.encode(r) + b"\n" for r in records))
    return paths


OF_RUN = rules(
    loss={"pattern": r"loss=(\d+)", "above": 100, "severity": "error"},
    tok={"pattern": "tok/s", "within": 1},
    step={"pattern": "step", "every": 1},
)


def test_a_run_is_searched_for_its_own_rules(tmp_path: Path) -> None:
    paths = a_run(tmp_path, OF_RUN, code=1)
    given = rules(other={"pattern": "loss"})
    found = gather([paths.folder], rules=RuleChoice(given))
    answer = diagnose(found, [])
    assert said(answer) == [
        ("loss", "loss!: 500 is above 100 (one line of rank 0)"),
        ("tok", "tok!: no rank has written it"),
    ]
    assert answer.rules[0].evidence[0].source == paths.stdout(0, 0)
    typed = diagnose(gather([paths.folder], rules=RuleChoice(given, typed=True)), [])
    assert typed.rules[0].rule == "other"


def test_rules_of_a_run_that_ended_well_are_context(tmp_path: Path) -> None:
    paths = a_run(tmp_path, OF_RUN, code=0)
    answer = diagnose(gather([paths.folder], rules=RuleChoice(NO_RULES)), [])
    assert {one.rule for one in answer.rules} == {"loss", "tok"}
    assert (answer.failed, answer.diagnoses) == (False, ())


@pytest.mark.parametrize("content", [b"", b"{}", b"[" * 9999, b'{"rules":[{"name":"x"}]}', b"\xff"])
def test_a_damaged_file_of_rules_has_none(content: bytes) -> None:
    assert decode(content, "rules.json").rules == ()


def test_rules_are_kept_as_they_were(tmp_path: Path) -> None:
    kept = decode(msgspec.json.encode(OF_RUN), "rules.json")
    assert kept.rules == OF_RUN.rules
