"""The journal: nothing lost, nothing torn, and no job dies of it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.fault import Fault
from holdfast.run.runs import journal, redact
from holdfast.run.runs.journal import Journal
from holdfast.text import printable
from tests.cli.holdfast_command import in_a_namespace

FAULT = Fault(code="HOLD606", slug="rank-stuck")
DATA = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.text(st.characters(), min_size=1).map("f_".__add__)


@given(lines=st.lists(st.dictionaries(NAMES, DATA, max_size=4), max_size=4), part=st.floats(0, 1))
def test_what_was_written_is_read_back_also_up_to_a_torn_end(
    lines: list[dict[str, Any]], part: float
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "journal.jsonl")
        book = Journal(str(path))
        for fields in lines:
            book.write("rank", **fields)
        book.close()
        back = [dict(list(record.items())[2:]) for record in journal.read(str(path))]
        assert back == [redact.from_data(printable(fields)) for fields in lines]
        content = path.read_bytes() if lines else b""
        ends = [place for place, byte in enumerate(content) if byte == ord("\n")]
        assert len(ends) == len(lines)
        cut = int(part * len(content))
        path.write_bytes(content[:cut])
        assert len(journal.read(str(path))) == sum(end <= cut for end in ends)


@given(st.binary())
def test_reading_never_raises(content: bytes) -> None:
    for record in journal._parse(content + b'\n{"t": 1.5, "kind": "end"}\n[1]\n{"t": "x"}\n'):
        assert isinstance(record["kind"], str)
        assert record["t"] + 0 == record["t"]


def test_lines_go_on_after_somebody_elses_torn_one(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b'{"t": 1, "kind": "launch"}\n{"t": 2, "kind": "ra')
    book = Journal(str(path))
    book.write("end", exit_code=0)
    book.close()
    assert [record["kind"] for record in journal.read(str(path))] == ["launch", "end"]


WRITER = """
import sys
from holdfast.run.runs.journal import Journal
book = Journal(sys.argv[1])
print(flush=True)
sys.stdin.readline()
for number in range(400):
    book.write("rank", who=sys.argv[2], number=number, padding="x" * 3000)
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
    records = journal.read(path)
    for who in ("a", "b"):
        assert [r["number"] for r in records if r["who"] == who] == list(range(400))
    assert len(Path(path).read_bytes().splitlines()) == 800


FILL_THE_DISK = """
import os, sys
from holdfast.run.runs import journal
book = journal.Journal(sys.argv[1] + "/journal.jsonl")
with open(sys.argv[1] + "/ballast", "wb") as ballast:
    ballast.write(b"x" * 20000)
for number in range(40):
    book.write("rank", number=number, padding="y" * 2500)
print([r["number"] for r in book.records()] == list(range(40)))
print(len(journal.read(book.path)) < 40)
os.unlink(sys.argv[1] + "/ballast")
for number in range(40, 42):
    book.write("rank", number=number)
print([r["number"] for r in journal.read(book.path)] == list(range(42)))
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
    assert "cannot be written" in done.stderr
    assert "the job goes on" in done.stderr


def test_a_journal_that_cannot_be_is_kept_in_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    book = Journal(str(tmp_path / "no" / "such" / "folder"))
    for number in range(journal.KEPT + 5):
        book.write("rank", number=number)
    assert capsys.readouterr().err.count("\n") == 1
    numbers = [record["number"] for record in book.records()]
    assert numbers == list(range(5, journal.KEPT + 5)), "the last ones are kept"
    (tmp_path / "no" / "such").mkdir(parents=True)
    book.write("end")
    book.close()
    assert len(journal.read(str(tmp_path / "no" / "such" / "folder"))) == journal.KEPT


def test_without_a_folder_nothing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    book = Journal(None)
    book.write("launch", world=2)
    book.close()
    assert [record["world"] for record in book.records()] == [2]
    assert capsys.readouterr().err == ""


class Unspeakable:
    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_an_odd_field_costs_neither_the_line_nor_the_job(tmp_path: Path) -> None:
    book = Journal(str(tmp_path / "j"))
    book.write("rank", where=Unspeakable())
    book.write("rank", where=Path("/x"))
    book.close()
    first, second = journal.read(str(tmp_path / "j"))
    assert "unwritten" in first
    assert second["where"] == "/x"


def test_a_notice_has_what_the_wire_format_promises(tmp_path: Path) -> None:
    verdict = FAULT.verdict(
        "rank 2 stuck; its password=hunter2hunter2", ranks=[2], victims=[3, 0], certain=False
    )
    book = Journal(str(tmp_path / "j"))
    book.write("notice", **journal.judgement(verdict, hosts=["b", "b"]), attempt=0, steps=7)
    book.close()
    (record,) = journal.read(str(tmp_path / "j"))
    assert record["slug"] == "rank-stuck"
    assert (record["ranks"], record["victims"], record["hosts"]) == ([2], [0, 3], ["b"])
    assert record["reason"] == "rank 2 stuck; its password=<redacted>"
