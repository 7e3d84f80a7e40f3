"""The names of a run's files: all inside its folder, none twice, all known as ours."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.job.run_paths import MARKER, RunPaths, is_ours

PATHS = RunPaths("runs", "251115-033107-train-a3f2")
COUNT = st.integers(0, 10**6)


def names(paths: RunPaths, attempt: int, number: int, rank: int) -> list[str]:
    return [
        paths.marker, paths.journal, paths.settings, paths.facts, paths.launcher,
        paths.stdout(attempt, rank), paths.stderr(attempt, rank),
        paths.error(attempt, rank), paths.last_words(attempt, rank),
        paths.stack(attempt, number, rank), paths.recorder(attempt, number, rank),
        paths.activity(attempt, number, rank), paths.missing(attempt, number),
        paths.kernel_log(attempt, number),
    ]  # fmt: skip


@given(COUNT, COUNT, COUNT)
def test_every_name_is_ours_and_no_two_are_the_same(attempt: int, number: int, rank: int) -> None:
    made = names(PATHS, attempt, number, rank)
    assert len(set(made)) == len(made)
    for name in made:
        top = os.path.relpath(name, PATHS.folder).split(os.sep)[0]
        assert is_ours(top), name


@given(st.tuples(COUNT, COUNT, COUNT), st.tuples(COUNT, COUNT, COUNT))
def test_two_ranks_or_attempts_never_share_a_file(
    one: tuple[int, int, int], other: tuple[int, int, int]
) -> None:
    if one[0] != other[0]:
        shared = set(names(PATHS, *one)) & set(names(PATHS, *other))
        assert all(os.path.dirname(name) == PATHS.folder for name in shared)


def test_the_layout_that_others_rely_on() -> None:
    assert PATHS.journal == "runs/251115-033107-train-a3f2/journal.jsonl"
    assert PATHS.stderr(1, 12).endswith("/attempt-1/rank-12/stderr.log")
    assert PATHS.stack(0, 2, 3).endswith("/attempt-0/evidence-2/rank-3.stack.json")
    assert PATHS.latest == "runs/latest"


@given(COUNT, COUNT)
def test_a_folder_of_evidence_is_known_by_its_number(attempt: int, number: int) -> None:
    assert PATHS.evidence_number(os.path.basename(PATHS.evidence(attempt, number))) == number
    assert PATHS.evidence_number(f"evidence-{number}.bak") is None
    assert PATHS.evidence_number(f"rank-{number}") is None


@pytest.mark.parametrize(
    "name", ["ckpt", "attempt-1.bak", "attempt-", "attempt-01", "xattempt-1", "journal.jsonl~", ""]
)
def test_what_we_do_not_write_is_not_ours(name: str) -> None:
    assert not is_ours(name)
    assert is_ours(MARKER)
