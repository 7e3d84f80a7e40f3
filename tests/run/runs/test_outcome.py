"""What `holdfast runs` says of a run."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.run.runs import outcome
from tests.run.journals import record

LAUNCH = {"kind": "launch", "world": 2}
KILLED = {"kind": "verdict", "slug": "rank-killed", "ranks": [1], "reason": "rank 1 was killed"}
RESTART = {"kind": "action", "action": "restart", "reason": "restarting (1 of 3)"}
STOP = {"kind": "action", "action": "stop", "reason": "stopping (--max-restarts is 0)"}
STALL = {"kind": "notice", "slug": "rank-stuck", "ranks": [1], "reason": "rank 1 has been in f()"}
NAN = {"kind": "notice", "slug": "nan-loss", "ranks": [0], "reason": "the loss is nan on rank 0"}
OOM = {"kind": "diagnosis", "slug": "gpu-oom", "confidence": 0.9, "reason": "no memory"}
INTERRUPTED = {"kind": "verdict", "slug": "external-sigterm", "stopped_by": "SIGINT"}
WELL = {"kind": "end", "exit_code": 0, "attempt": 1}
BADLY = {"kind": "end", "exit_code": 137}


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ([LAUNCH], ""),
        ([LAUNCH, WELL], ""),
        ([LAUNCH, KILLED, RESTART, WELL], "restarted after rank-killed"),
        ([LAUNCH, KILLED, RESTART], "restarted after rank-killed"),
        ([LAUNCH, NAN, WELL], "nan-loss: the loss is nan on rank 0"),
        (
            [LAUNCH, KILLED, RESTART, NAN, WELL],
            "restarted after rank-killed; nan-loss: the loss is nan on rank 0",
        ),
        ([LAUNCH, STALL, WELL], ""),
        ([LAUNCH, KILLED, STOP, BADLY], "rank-killed: rank 1 was killed"),
        ([LAUNCH, KILLED, STOP, OOM, BADLY], "gpu-oom: no memory"),
        ([LAUNCH, STALL], "rank 1 has been in f()"),
        ([LAUNCH, STALL, {"kind": "progress", "steps": 9}], ""),
        ([LAUNCH, INTERRUPTED, BADLY], "stopped by Ctrl-C"),
        (
            [LAUNCH, {**STALL, "kind": "verdict", "stopped_by": "SIGTERM"}, BADLY],
            "stopped by SIGTERM during a stall: rank 1 has been in f()",
        ),
        ([LAUNCH, KILLED, {**BADLY, "reason": "holdfast stop: killed"}], "holdfast stop: killed"),
    ],
)
def test_one_sentence_for_each_run(records: list[dict[str, Any]], said: str) -> None:
    assert outcome.sentence([record(**fields) for fields in records]) == said
