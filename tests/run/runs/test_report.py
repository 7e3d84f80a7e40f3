"""The end of a run in figures, from its records alone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.job.journal_records import JournalRecord, decode
from holdfast.findings import Culprit, Diagnosis, Evidence
from holdfast.run.runs.report import lines, lost_in, steps_in, summarise
from tests.run.journals import record


def at(t: float, kind: str, attempt: int = 0, steps: int = 0, **fields: Any) -> JournalRecord:
    return record(kind, t=t, attempt=attempt, steps=steps, **fields)


def verdict(t: float, attempt: int, steps: int, **fields: Any) -> JournalRecord:
    told = {
        "slug": "rank-killed",
        "ranks": [2],
        "victims": [0, 1, 3],
        "reason": "rank 2 was killed",
    }
    return at(t, "verdict", attempt, steps, **{**told, **fields})


LAUNCH = record("launch", t=100.0, world=4)
RESTARTED = [
    LAUNCH,
    at(150, "progress", 0, 700),
    verdict(160, 0, 800, longest_pause=14.0),
    at(160, "action", 0, 800, action="restart", idle=2.0),
    at(168, "progress", 1, 1),
    at(260, "end", 1, 900, exit_code=0, longest_pause=21.0),
]


def test_a_quiet_run_is_one_line() -> None:
    quiet = [LAUNCH, at(105, "progress", 0, 3), at(341, "end", 0, 1200, exit_code=0)]
    assert lines(summarise(quiet)) == ["done: 1200 steps, 0 restarts, 4 minutes"]


def test_a_restart_is_counted_and_told() -> None:
    report = summarise(RESTARTED)
    assert (report.steps, report.restarts, report.attempts) == (1700, 1, 2)
    assert report.lost == 10.0
    assert lines(report) == [
        "done: 1700 steps, 1 restart, 2 minutes",
        "10.0 s lost between the last step before a restart and the first after it",
        "longest pause the job came back from: 21 s",
        "recovered from rank-killed on rank 2 (restart 1)",
    ]


def test_the_first_failure_is_the_root_cause_and_the_last_line() -> None:
    """A restart that fails otherwise must not hide why there was one."""
    exists = "ranks 0-3 raised FileExistsError: ckpt"
    failed = [
        *RESTARTED[:-1],
        verdict(200, 1, 30, slug="python-exception", ranks=[0, 1, 2, 3], reason=exists, fix="none"),
        at(200, "action", 1, 30, action="restart"),
        verdict(210, 2, 20, slug="restart-loop", reason="the same twice"),
        verdict(210, 2, 20, slug="python-exception", ranks=[0, 1, 2, 3], reason=exists, fix="none"),
        at(210, "action", 2, 30, action="stop"),
        at(213, "end", 2, 30, exit_code=1),
    ]
    told = lines(summarise(failed))
    assert told[0] == "failed with exit code 1: 860 steps, 2 restarts, 1 minute"
    assert told[-2:] == [
        f"after restarts 1-2: python-exception: {exists}",
        "root cause: rank-killed: rank 2 was killed",
    ]


def test_what_the_job_got_over_is_not_its_root_cause() -> None:
    failed = [
        *RESTARTED[:-1],
        record("resume", t=190, attempt=1, step=795, reached=800, repeated=5),
        verdict(200, 1, 30, slug="gpu-oom", ranks=[0], reason="rank 0 ran out of memory"),
        at(203, "end", 1, 30, exit_code=1),
    ]
    assert lines(summarise(failed))[-2:] == [
        "recovered from rank-killed on rank 2 (restart 1)",
        "root cause: gpu-oom: rank 0 ran out of memory",
    ]


def test_the_same_failure_is_said_once_however_often_it_came() -> None:
    failed = [LAUNCH, *(verdict(110 + n, n, 1) for n in range(3)), at(111, "end", exit_code=1)]
    assert lines(summarise(failed))[-2:] == [
        "after restarts 1-2: the same again",
        "root cause: rank-killed: rank 2 was killed",
    ]


def stopped(sign: str, **fields: Any) -> list[JournalRecord]:
    fields = {"slug": "external-sigterm", "ranks": [], "reason": "stopped", **fields}
    return [LAUNCH, verdict(110, 0, 1, stopped_by=sign, **fields), at(111, "end", exit_code=130)]


def test_a_job_that_was_told_to_stop_has_no_root_cause() -> None:
    assert lines(summarise(stopped("SIGINT"))) == ["stopped by Ctrl-C: 1 step, 0 restarts, 11 s"]
    assert lines(summarise(stopped("SIGTERM")))[0].startswith("stopped by SIGTERM: ")


def test_a_job_that_was_told_to_stop_in_a_stall_says_which() -> None:
    stall = "rank 2 has been in read() at data.py:8 for 2 minutes; rank 0 waits for it"
    assert lines(summarise(stopped("SIGTERM", slug="rank-stuck", ranks=[2], reason=stall))) == [
        "stopped by SIGTERM: 1 step, 0 restarts, 11 s",
        f"stalled when it was stopped: rank-stuck: {stall}",
    ]


def test_a_signal_after_a_verdict_does_not_replace_it() -> None:
    order = stopped("SIGTERM")[1]
    failed = [LAUNCH, verdict(109, 0, 1), order, at(111, "end", exit_code=143)]
    assert lines(summarise(failed))[-1] == "root cause: rank-killed: rank 2 was killed"


def test_a_rank_that_the_reason_only_begins_like_is_named() -> None:
    failed = [LAUNCH, verdict(110, 0, 1, reason="rank 25 waits"), at(111, "end", exit_code=1)]
    assert lines(summarise(failed))[-1] == "root cause: rank-killed on rank 2: rank 25 waits"


def test_only_what_was_restarted_has_a_restart() -> None:
    cut_off = [*RESTARTED[:-1], verdict(200, 1, 30)]
    assert lines(summarise(cut_off))[-2:] == [
        "recovered from rank-killed on rank 2 (restart 1)",
        "recovered from rank-killed on rank 2",
    ]


# --- with what explain says -----------------------------------------------------------------------

HINT = "`holdfast explain 'my runs/ID'` shows the evidence"
"""to be pasted"""
CAUSE = "root cause: rank-killed: rank 2 was killed"


def found(slug: str, rank: int | None = 2, confidence: float = 0.92) -> Diagnosis:
    return Diagnosis(
        code="HOLD308",
        slug=slug,
        confidence=confidence,
        culprit=None if rank is None else Culprit(rank=rank),
        reason="the GPU was full",
        evidence=(Evidence(quote="CUDA out of memory", source="stderr.log", line=9, rank=2),),
        fix="a smaller batch",
    )


@pytest.mark.parametrize(
    ("ranks", "answer", "ending"),
    [
        ([2], None, [CAUSE]),
        ([2], found("gpu-oom", confidence=0.4), [CAUSE]),
        ([2], found("rank-killed"), [HINT, CAUSE]),
        ([], found("rank-killed", None), [HINT, CAUSE]),
        (
            [2],
            found("gpu-oom"),
            [
                "verdict while it ran: rank-killed: rank 2 was killed",
                "  --> stderr.log:9: rank 2: CUDA out of memory",
                "help: a smaller batch",
                HINT,
                "root cause: gpu-oom on rank 2: the GPU was full",
            ],
        ),
    ],
    ids=["none", "unsure", "agrees", "agrees-without-rank", "knows-better"],
)
def test_the_root_cause_comes_last_and_only_once(
    ranks: list[int], answer: Diagnosis | None, ending: list[str]
) -> None:
    failed = [LAUNCH, verdict(110, 0, 1, ranks=ranks), at(111, "end", exit_code=1)]
    assert lines(summarise(failed), diagnosis=answer, folder="my runs/ID")[1:] == ending


def test_without_a_verdict_the_diagnosis_is_the_root_cause() -> None:
    failed = [LAUNCH, at(111, "end", exit_code=1)]
    told = lines(summarise(failed), diagnosis=found("gpu-oom", None), folder="my runs/ID")
    assert told[-1] == "root cause: gpu-oom: the GPU was full"


# --- any journal ----------------------------------------------------------------------------------


def test_many_verdicts_do_not_push_the_cause_off_the_screen() -> None:
    failed = [LAUNCH, *(verdict(110 + n, n, 1) for n in range(30)), at(200, "end", exit_code=1)]
    told = lines(summarise(failed))
    assert len(told) < 10
    assert "after restarts 1-29: the same again" in told
    assert told[-1].startswith("root cause: ")


def test_many_failures_are_counted() -> None:
    other = [verdict(110 + n, n, n, reason=f"rank 2 was killed at {n}") for n in range(30)]
    told = lines(summarise([LAUNCH, *other, at(200, "end", exit_code=0)]))
    assert told[-1] == "27 more failures: see the journal"


def test_no_time_is_lost_where_no_step_was_made() -> None:
    before = [at(100, "action", 0, 0, action="restart", idle=2.0), at(110, "end", 1, exit_code=2)]
    assert lost_in(before) == 0.0
    assert lines(summarise([LAUNCH, *before]))[0].startswith(
        "failed with exit code 2: no step seen"
    )


def test_two_restarts_in_one_gap_are_not_counted_twice() -> None:
    gap = [
        at(100, "progress", 0, 50),
        at(112, "action", 0, 50, action="restart", idle=2.0),
        at(120, "action", 1, 0, action="restart", idle=8.0),
        at(130, "progress", 2, 1),
    ]
    assert lost_in(gap) == 20.0
    assert lost_in([*gap[:3], at(125, "end", 1, exit_code=1)]) == 15.0, "never came back"


def test_without_steps_nothing_is_claimed() -> None:
    told = lines(summarise([LAUNCH, at(103, "end", exit_code=0)]))
    assert told == ["done: steps unknown (no optimizer call seen), 0 restarts, 3 s"]
    assert lines(summarise([]))[0].startswith("no end was written")


FIELDS = st.dictionaries(
    st.sampled_from(["attempt", "steps", "idle", "action", "exit_code", "reason", "ranks", "slug"]),
    st.none() | st.integers(-5, 50) | st.sampled_from(["restart", "x", [1, "x"], [1]]),
)
KINDS = st.sampled_from(["launch", "progress", "verdict", "action", "resume", "end", "other"])


@given(st.lists(st.tuples(st.floats(0, 1e9), KINDS, FIELDS)))
def test_any_journal_gives_a_report(seen: list[tuple[float, str, dict[str, Any]]]) -> None:
    lines_of_it = [msgspec.json.encode({**more, "t": t, "kind": kind}) for t, kind, more in seen]
    report = summarise([one for line in lines_of_it if (one := decode(line))])
    assert report.lost >= 0
    assert report.seconds >= 0
    assert all(isinstance(line, str) for line in lines(report))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1000))))
def test_steps_add_up_whatever_the_order(seen: list[tuple[int, int]]) -> None:
    records = [at(0, "progress", attempt, steps) for attempt, steps in seen]
    assert steps_in(records) == steps_in(records[::-1])
    assert steps_in(records) == sum(
        max(steps for a, steps in seen if a == attempt) for attempt in {a for a, _ in seen}
    )
