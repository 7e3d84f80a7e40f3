"""The folder of a run: which attempt is explained, who was who, which files are read."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import catalogue
from holdfast.analysis.job.run_paths import MARKER
from holdfast.explain.diagnose import Explanation, diagnose
from holdfast.explain.gather import gather
from holdfast.explain.read import run_folder
from holdfast.findings import Grade


def journal(*records: dict[str, Any]) -> str:
    return "".join(json.dumps({"t": 100.0 + n, **r}) + "\n" for n, r in enumerate(records))


def made(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARKER).write_text("{}")
    (folder / "journal.jsonl").write_text(text)
    return folder


LAUNCH = {"kind": "launch", "world": 2, "attempt": 0}
STARTED = [
    {"kind": "rank", "attempt": 0, "rank": rank, "pid": 70 + rank, "what": "started"}
    for rank in range(2)
]
DIED = {"kind": "rank", "attempt": 0, "rank": 1, "pid": 71, "what": "exited", "code": -9}
VERDICT = {
    "kind": "verdict", "slug": "rank-killed", "code": "HOLD701", "ranks": [1], "victims": [0],
    "hosts": ["node7"], "reason": "rank 1 was killed", "fix": "look", "attempt": 0,
}  # fmt: skip
WELL = {"kind": "end", "exit_code": 0, "attempt": 1}


def test_the_attempt_that_failed_is_explained(tmp_path: Path) -> None:
    later = [{"kind": "rank", "attempt": 1, "rank": 0, "pid": 90, "what": "started"}, WELL]
    text = journal(LAUNCH, *STARTED, DIED, VERDICT, *later)
    found = run_folder.read(str(made(tmp_path / "r", text))).story
    assert (found.attempt, found.world_size, found.host) == (0, 2, "node7")
    assert found.pids == {0: 70, 1: 71}
    assert found.newest == {0: 90}
    (end,) = found.exits
    assert (end.rank, end.pid, end.code, end.teller, end.line.number) == (1, 71, -9, "holdfast", 4)
    (told,) = found.told
    assert (told.slug, told.ranks, told.victims, told.verdict) == ("rank-killed", (1,), (0,), True)


def test_a_run_that_ended_well_has_nothing_to_explain(tmp_path: Path) -> None:
    text = journal(LAUNCH, *STARTED, {"kind": "end", "exit_code": 0, "attempt": 0})
    found = run_folder.read(str(made(tmp_path / "r", text))).story
    assert found.finished
    assert not found.told


def test_the_logs_of_all_ranks_and_the_last_evidence(tmp_path: Path) -> None:
    folder = made(tmp_path / "r", journal(LAUNCH))
    for name in ("rank-0/stderr.log", "evidence-2/rank-0.stack.json", "evidence-2/kernel.log",
                 "evidence-10/rank-0.recorder.json", "evidence-10/missing.txt"):  # fmt: skip
        file = folder / "attempt-0" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
    files = [(rank, Path(path).name) for rank, path in run_folder.read(str(folder)).files()]
    assert files == [(0, "stderr.log"), (0, "rank-0.recorder.json")]


def test_an_end_without_a_verdict_is_explained_too(tmp_path: Path) -> None:
    text = journal(LAUNCH, VERDICT, {"kind": "end", "exit_code": 1, "attempt": 2})
    assert run_folder.read(str(made(tmp_path / "r", text))).story.attempt == 2


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ([WELL], "the run was restarted after it, and ended well"),
        ([{"kind": "rank", "attempt": 1, "rank": 0, "pid": 90}], "the run was restarted after it"),
        ([{"kind": "end", "exit_code": 1, "attempt": 0}], ""),
        # the first failure is explained, not what the restart then failed with
        (
            [
                {**VERDICT, "slug": "python-exception", "attempt": 1, "reason": "it exists"},
                {"kind": "end", "exit_code": 1, "attempt": 1},
            ],
            "the run was restarted after it, and failed with python-exception: it exists",
        ),
    ],
)
def test_what_became_of_the_run_is_said(
    tmp_path: Path, end: list[dict[str, Any]], said: str
) -> None:
    folder = made(tmp_path / "r", journal(LAUNCH, *STARTED, VERDICT, *end))
    (told,) = run_folder.read(str(folder)).story.told
    assert told.afterwards == said
    first = explained(str(folder)).diagnoses[0]
    assert first.reason == "; ".join(filter(None, ["rank 1 was killed", said]))


def test_what_no_start_gets_past_comes_first(tmp_path: Path) -> None:
    damaged = {
        **VERDICT, "slug": "checkpoint-corrupt", "code": "HOLD802", "attempt": 1,
        "ranks": [0, 1], "victims": [], "reason": "ranks 0-1 could not load last.pt",
    }  # fmt: skip
    end = {"kind": "end", "exit_code": 1, "attempt": 1}
    folder = made(tmp_path / "r", journal(LAUNCH, *STARTED, VERDICT, damaged, end))
    assert run_folder.read(str(folder)).story.attempt == 1
    first = explained(str(folder)).diagnoses[0]
    assert first.slug == "checkpoint-corrupt"
    assert first.reason == (
        "ranks 0-1 could not load last.pt; it was the restart after rank-killed: rank 1 was killed"
    )


def test_a_signal_is_not_the_cause_of_a_stall_that_was_named(tmp_path: Path) -> None:
    stall = {**VERDICT, "slug": "rank-stuck", "code": "HOLD606", "reason": "rank 1 has been in f()"}
    end = {"kind": "end", "exit_code": 143, "attempt": 0}
    text = journal(LAUNCH, *STARTED, {**stall, "stopped_by": "SIGTERM"}, end)
    first = explained(str(made(tmp_path / "r", text))).diagnoses[0]
    assert (first.slug, first.culprit and first.culprit.rank) == ("rank-stuck", 1)
    assert first.reason == "the run was stopped by SIGTERM during a stall: rank 1 has been in f()"
    assert first.grade is Grade.LIKELY


# --- the whole way ------------------------------------------------------------------------------

WORDS = (
    '{"kind": "OutOfMemoryError", "text": "CUDA out of memory. Tried to allocate 2.00 GiB. '
    'GPU 0 has a total capacity of 79.15 GiB", "where": "train.py:9 in f", "at": 1.0}'
)
RAISED = {**VERDICT, "slug": "python-exception", "code": "HOLD611", "reason": "rank 1 raised"}


def explained(path: str) -> Explanation:
    return diagnose(gather([path]), [entry.fault for entry in catalogue.entries()])


def full(folder: Path, *records: dict[str, Any]) -> Path:
    run = made(folder, journal(LAUNCH, *STARTED, *records))
    for name, text in {
        "attempt-0/rank-0/stderr.log": "ConnectionResetError: [Errno 104] reset\n",
        "attempt-0/rank-1/stdout.log": "step 10\n",
        "attempt-0/rank-1/last_words.json": WORDS,
        "attempt-0/rank-1/last_words.json.crash": "",
        "attempt-1/rank-0/stderr.log": "MemoryError\n",
        "settings.json": '{"text": "No space left on device"}',
    }.items():
        file = run / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return run


def packed(folder: Path) -> str:
    """As `holdfast bundle` does: folder by folder, each in the order of its names."""
    target = folder.with_suffix(".tar.gz")
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    with tarfile.open(target, "w:gz") as archive:
        for file in sorted(files, key=lambda path: path.parent != folder):
            archive.add(file, f"{folder.name}/{file.relative_to(folder)}")
    return str(target)


@pytest.mark.parametrize("pack", [str, packed])
def test_last_words_speak_where_the_log_is_silent(
    tmp_path: Path, pack: Callable[[Path], str]
) -> None:
    report = explained(pack(full(tmp_path / "r", RAISED)))
    first = report.diagnoses[0]
    assert (first.slug, first.culprit and first.culprit.rank) == ("gpu-oom", 1)
    assert first.culprit
    assert (first.culprit.pid, first.culprit.host) == (71, "node7")
    assert not report.remarks
    assert not any("attempt-1" in e.source for d in report.diagnoses for e in d.evidence)


@pytest.mark.parametrize("pack", [str, packed])
def test_nothing_is_said_of_a_run_that_ended_well(
    tmp_path: Path, pack: Callable[[Path], str]
) -> None:
    run = pack(full(tmp_path / "r", {"kind": "end", "exit_code": 0, "attempt": 0}))
    report = explained(run)
    assert not report.diagnoses
    assert not report.failed
    assert any(source.size for source in gather([run]).sources), "else it would seem empty"


@pytest.mark.parametrize("pack", [str, packed])
def test_wrong_numbers_of_a_run_that_ended_well_are_explained(
    tmp_path: Path, pack: Callable[[Path], str]
) -> None:
    wrong = {**VERDICT, "kind": "notice", "slug": "replica-mismatch", "code": "HOLD317"}
    slow = {**VERDICT, "kind": "notice", "slug": "slow-rank", "code": "HOLD609"}
    end = {"kind": "end", "exit_code": 0, "attempt": 0}
    report = explained(pack(full(tmp_path / "r", wrong, slow, end)))
    assert [(found.slug, found.culprit and found.culprit.rank) for found in report.diagnoses] == [
        ("replica-mismatch", 1)
    ]


def two_nodes(root: Path) -> Path:
    """Of one run: `a` coordinated and wrote the end; the launcher of `b`, with rank 1, was killed
    in attempt 1, for which both journals have the same verdict."""
    killed = {**VERDICT, "attempt": 1, "hosts": ["b"], "reason": "b was lost", "slug": "node-lost"}
    end = {"kind": "end", "exit_code": 124, "attempt": 1}
    stories = {"a": (killed, end), "b": ({"kind": "progress", "attempt": 0, "steps": 3},)}
    for rank, (node, records) in enumerate(stories.items()):
        folder = made(root / node, journal(LAUNCH, *STARTED, *records))
        marker = {"run": "r", "started": 1.0, "of": "r", "node": node, "coordinates": node == "a"}
        (folder / MARKER).write_text(json.dumps(marker))
        for attempt in (0, 1):
            log = folder / f"attempt-{attempt}" / f"rank-{rank}" / "stderr.log"
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text(f"RuntimeError: in attempt {attempt}\n")
    return root


def packed_nodes(root: Path) -> str:
    """As `holdfast bundle --hosts` does."""
    target = root.with_suffix(".tar.gz")
    with tarfile.open(target, "w:gz") as archive:
        for node in ("a", "b"):
            files = sorted(path for path in (root / node).rglob("*") if path.is_file())
            for file in sorted(files, key=lambda path: path.parent != root / node):
                archive.add(file, f"r/{file.relative_to(root)}")
    return str(target)


@pytest.mark.parametrize("pack", [str, packed_nodes])
def test_the_coordinators_journal_speaks_for_all_nodes(
    tmp_path: Path, pack: Callable[[Path], str]
) -> None:
    where = pack(two_nodes(tmp_path / "r"))
    found = gather(run_folder.nodes_inside(where) or [where])
    assert [one.slug for one in found.live_verdicts] == ["node-lost"]
    texts = {(one.rank, one.line.host, one.text) for one in found.raised}
    assert texts == {(0, "a", "in attempt 1"), (1, "b", "in attempt 1")}
    journals = [one.name for one in found.sources if one.kind == "journal"]
    assert [name.split("/")[-2] for name in journals] == ["a", "b"]


def test_only_folders_of_one_run_are_its_nodes(tmp_path: Path) -> None:
    root = two_nodes(tmp_path / "r")
    assert run_folder.nodes_inside(str(root)) == [str(root / "a"), str(root / "b")]
    made(root / "c", "")
    assert run_folder.nodes_inside(str(root)) == []
    assert run_folder.nodes_inside("-") == []


def test_any_other_folder_is_not_ours(tmp_path: Path) -> None:
    assert not run_folder.looks_like(str(tmp_path))
    assert run_folder.looks_like(str(made(tmp_path / "r", "")))


@given(st.binary(max_size=400))
def test_a_damaged_journal_never_stops_us(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes
) -> None:
    folder = made(tmp_path_factory.mktemp("run"), "")
    whole = journal(LAUNCH, VERDICT).encode()
    (folder / "journal.jsonl").write_bytes(junk + b"\n" + whole + junk)
    assert run_folder.read(str(folder)).story.told[0].slug == "rank-killed"
