"""The folder of a run whose launcher was killed: it has no end, and nothing else may be wrong."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from holdfast.analysis.job.journal_records import (
    EndRecord,
    JournalRecord,
    LaunchRecord,
    ProgressRecord,
    RankRecord,
)
from holdfast.analysis.job.run_paths import RunPaths
from holdfast.explain.gather import gather

STARTED = (LaunchRecord(t=1.0, world=2), *(RankRecord(t=1.0, rank=r, pid=7 + r) for r in (0, 1)))
WELL = tuple(RankRecord(t=9.0, rank=r, pid=7 + r, what="exited", code=0) for r in (0, 1))
KILLED = RankRecord(t=9.0, rank=1, pid=8, what="exited", code=-9)


def a_run(root: Path, *records: JournalRecord) -> str:
    paths = RunPaths(str(root), "run")
    os.makedirs(paths.rank(0, 0))
    Path(paths.marker).write_text('{"run":"run","started":1.0}')
    Path(paths.stdout(0, 0)).write_text("step 1\n")
    Path(paths.journal).write_bytes(b"".join(msgspec.json.encode(r) + b"\n" for r in records))
    return paths.folder


@pytest.mark.parametrize(
    ("records", "lost"),
    [
        (STARTED, True),
        ((*STARTED, ProgressRecord(t=2.0, steps=3)), True),
        ((*STARTED, *WELL[:1], KILLED), True),
        ((*STARTED, *WELL), False),  # killed when all was done
        ((*STARTED, KILLED, EndRecord(t=9.0, exit_code=137)), False),
        ((), False),
    ],
)
def test_a_journal_without_an_end(
    tmp_path: Path, records: tuple[JournalRecord, ...], lost: bool
) -> None:
    folder = a_run(tmp_path, *records)
    for gone in (True, False):
        found = gather([folder], gone={folder: gone}).lost_runs
        assert [(one.gone, one.line.number) for one in found] == [(gone, len(records))] * lost
    assert gather([folder]).lost_runs == ()  # its launcher may live
