"""The journal: nothing lost, nothing torn, and no job dies of it."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.job.journal_records import (
    RECORDS,
    EndRecord,
    JournalRecord,
    LaunchRecord,
    NoticeRecord,
    ProgressRecord,
    RankEventRecord,
    RankRecord,
    VerdictRecord,
    decode,
    kind_of,
)
from holdfast.run.runs import journal, redact
from holdfast.run.runs.journal import Journal
from holdfast.run.runs.writer_process import KEPT
from tests.cli.holdfast_command import in_a_namespace
from tests.run.journals import as_written

TEXTS = st.text(st.characters())
DIGITS = st.integers(0, 9)
RANKS: st.SearchStrategy[JournalRecord] = st.builds(RankRecord, rank=DIGITS, code=DIGITS)
NOTICES = st.builds(NoticeRecord, slug=TEXTS, reason=TEXTS, ranks=st.tuples(DIGITS))
EVENTS = st.builds(RankEventRecord, told=st.dictionaries(TEXTS, TEXTS | st.lists(TEXTS)))
WRITTEN = RANKS | NOTICES | EVENTS


@given(records=st.lists(WRITTEN, max_size=4), part=st.floats(0, 1))
def test_what_was_written_is_read_back_also_up_to_a_torn_end(
    records: list[JournalRecord], part: float
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "journal.jsonl")
        book = Journal(str(path))
        for one in records:
            book.write(one)
        book.close()
        back = [msgspec.structs.replace(one, t=0.0) for one in journal.read(str(path))]
        expected = [redact.from_data(one) for one in as_written(records)]
        assert as_written(back) == expected
        content = path.read_bytes() if records else b""
        ends = [place for place, byte in enumerate(content) if byte == ord("\n")]
        assert len(ends) == len(records)
        cut = int(part * len(content))
        path.write_bytes(content[:cut])
        assert len(journal.read(str(path))) == sum(end <= cut for end in ends)


@given(st.binary())
def test_reading_never_raises(content: bytes) -> None:
    lines = [b'{"t": 1.5, "kind": "end", "exit_code": 0}', b"[1]", b'{"t": "x", "kind": "launch"}']
    *_, last = journal._parse(b"\n".join([content, *lines]))
    assert last == EndRecord(t=1.5, exit_code=0)


def test_what_another_holdfast_wrote_is_read_as_far_as_it_is_known() -> None:
    newer = b'{"t": 1, "kind": "launch", "world": 2, "fabric": "ib"}\n{"t": 2, "kind": "grown"}\n'
    older = b'{"t": 3, "kind": "verdict", "slug": "rank-killed"}\n'
    assert journal._parse(newer + older) == [
        LaunchRecord(t=1, world=2),
        VerdictRecord(t=3, slug="rank-killed"),
    ]


def test_every_kind_is_decoded_as_the_type_that_wrote_it() -> None:
    kinds = [kind_of(record) for record in RECORDS]
    assert len(set(kinds)) == len(kinds)
    for record in RECORDS:
        fields = msgspec.structs.fields(record)
        made = record(**{f.name: SAMPLES[f.name] for f in fields if f.required})
        assert decode(msgspec.json.encode(made)) == made


SAMPLES: dict[str, Any] = {
    "rank": 1, "seen": "lo", "name": "nofile", "soft": 1, "raised_to": 2, "exit_code": 0,
    "slug": "x", "action": "stop", "signal": "SIGABRT", "step": 3, "path": "/c", "interval": 9.0,
    "digest": "aa", "rule": "loss-too-high",
}  # fmt: skip


def test_lines_go_on_after_somebody_elses_torn_one(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b'{"t": 1, "kind": "launch"}\n{"t": 2, "kind": "ra')
    book = Journal(str(path))
    book.write(EndRecord(exit_code=0))
    book.close()
    assert [kind_of(one) for one in journal.read(str(path))] == ["launch", "end"]


WRITER = """
import sys
from holdfast.analysis.job.journal_records import RankEventRecord
from holdfast.run.runs.journal import Journal
from holdfast.run.runs.writer_process import KEPT
book = Journal(sys.argv[1])
print(flush=True)
sys.stdin.readline()
for number in range(400):
    told = {"who": sys.argv[2], "padding": "x" * 3000}
    book.write(RankEventRecord(rank=number, told=told))
"""


def test_two_writers_never_tear_each_others_lines(tmp_path: Path) -> None:
    path = str(tmp_path / "journal.jsonl")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, path, who], **pipes)  # type: ignore[call-overload]
        for who in ("a", "b")
    ]
    try:
        for writer in writers:
            writer.stdout.readline()  # both are ready: now they write at the same time
        for writer in writers:
            writer.stdin.write("\n")
            writer.stdin.flush()
        for writer in writers:
            writer.communicate(timeout=60)
            assert writer.returncode == 0
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()
    records = as_written(journal.read(path))
    for who in ("a", "b"):
        assert [r["rank"] for r in records if r["told"]["who"] == who] == list(range(400))
    assert len(Path(path).read_bytes().splitlines()) == 800


FILL_THE_DISK = """
import os, sys
from holdfast.analysis.job.journal_records import RankEventRecord
from holdfast.run.runs import journal
book = journal.Journal(sys.argv[1] + "/journal.jsonl")
with open(sys.argv[1] + "/ballast", "wb") as ballast:
    ballast.write(b"x" * 20000)
for number in range(40):
    book.write(RankEventRecord(rank=number, told={"padding": "y" * 2500}))
print([r.rank for r in book.records()] == list(range(40)))
print(len(journal.read(book.path)) < 40)
os.unlink(sys.argv[1] + "/ballast")
for number in range(40, 42):
    book.write(RankEventRecord(rank=number))
print([r.rank for r in journal.read(book.path)] == list(range(42)))
"""


@pytest.mark.lab
def test_a_full_disk_costs_one_sentence_and_no_line(tmp_path: Path) -> None:
    """Lines of 2.5 KB on a disk of 4 KB pages: the last one before the end is torn in two."""
    setup = f"mount -t tmpfs -o size=112k tmpfs '{tmp_path}'"
    done = subprocess.run(
        [*in_a_namespace("mount", setup=setup), sys.executable, "-c", FILL_THE_DISK, str(tmp_path)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout.split() == ["True"] * 3, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "cannot write the journal" in done.stderr
    assert "training continues" in done.stderr


def test_a_journal_that_cannot_be_is_kept_in_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    book = Journal(str(tmp_path / "no" / "such" / "folder"))
    for number in range(KEPT + 5):
        book.write(RankRecord(rank=number))
    assert capsys.readouterr().err.count("\n") == 1
    numbers = [one["rank"] for one in as_written(book.records())]
    assert numbers == list(range(5, KEPT + 5)), "the last ones are kept"
    (tmp_path / "no" / "such").mkdir(parents=True)
    book.write(EndRecord(exit_code=0))
    book.close()
    assert len(journal.read(str(tmp_path / "no" / "such" / "folder"))) == KEPT


def test_a_run_of_months_has_a_journal_of_bounded_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "LARGEST", 2000)
    book = Journal(str(tmp_path / "j"))
    book.write(LaunchRecord(world=2))
    for steps in range(1000):
        book.write(ProgressRecord(steps=steps))
        book.write(NoticeRecord(slug="rank-stuck"))
    book.write(VerdictRecord(slug="rank-killed"))
    book.write(EndRecord(exit_code=137))
    book.close()
    assert (tmp_path / "j").stat().st_size < 3000
    kinds = [kind_of(one) for one in journal.read(str(tmp_path / "j"))]
    assert kinds[0] == "launch"
    assert kinds[-3:] == ["thinned", "verdict", "end"]


def test_without_a_folder_nothing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    book = Journal(None)
    book.write(LaunchRecord(world=2))
    book.close()
    assert [one["world"] for one in as_written(book.records())] == [2]
    assert capsys.readouterr().err == ""


class Unspeakable:
    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_an_odd_field_costs_neither_the_line_nor_the_job(tmp_path: Path) -> None:
    book = Journal(str(tmp_path / "j"))
    book.write(RankEventRecord(told={"where": Unspeakable()}))
    book.write(RankEventRecord(told={"where": Path("/x")}))
    book.close()
    first, second = (json.loads(line) for line in (tmp_path / "j").read_text().splitlines())
    assert "unwritten" in first
    assert second["told"] == {"where": "/x"}


def test_a_notice_has_what_the_wire_format_promises(tmp_path: Path) -> None:
    book = Journal(str(tmp_path / "j"))
    book.write(
        NoticeRecord(
            slug="rank-stuck",
            ranks=(2,),
            victims=(0, 3),
            hosts=("b",),
            steps=7,
            reason="rank 2 stuck; its password=hunter2hunter2",
        )
    )
    book.close()
    record = json.loads((tmp_path / "j").read_text())
    assert (record["kind"], record["slug"], record["steps"]) == ("notice", "rank-stuck", 7)
    assert (record["ranks"], record["victims"], record["hosts"]) == ([2], [0, 3], ["b"])
    assert record["reason"] == "rank 2 stuck; its password=<redacted>"


def test_a_code_is_written_only_for_a_rank_that_exited(tmp_path: Path) -> None:
    book = Journal(str(tmp_path / "j"))
    book.write(RankRecord(rank=0, what="started"))
    book.write(RankRecord(rank=0, what="exited", code=-9))
    book.close()
    started, exited = (json.loads(line) for line in (tmp_path / "j").read_text().splitlines())
    assert "code" not in started
    assert exited["code"] == -9
