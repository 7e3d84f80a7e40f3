"""A run's folder is written by a process that may hang, be killed, or be refused."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from holdfast.analysis.job.run_paths import RunPaths
from holdfast.run.runs import folder_writer
from holdfast.run.runs.folder_writer import FolderNews, FolderWriter
from tests.cli.holdfast_command import wait_until
from tests.frozen_disk import disk


@contextlib.contextmanager
def writer(folder: Path) -> Iterator[tuple[FolderWriter, list[FolderNews]]]:
    news: list[FolderNews] = []
    made = FolderWriter(str(folder), tell=news.append)
    try:
        yield made, news
    finally:
        made.close(30.0)


def process_of(made: FolderWriter) -> psutil.Process:
    wait_until(lambda: bool(children()))
    return children()[0]


def children() -> list[psutil.Process]:
    found = []
    for process in psutil.Process().children():
        with contextlib.suppress(psutil.ZombieProcess):
            found += [process] * ("writer_process.py" in " ".join(process.cmdline()))
    return found


def test_logs_lines_folders_and_what_ranks_left(tmp_path: Path) -> None:
    local = tmp_path / "local"
    (local / "attempt-0" / "rank-0").mkdir(parents=True)
    run = tmp_path / "run"
    with writer(run) as (made, news):
        made.log(str(run / "a" / "stdout.log"), b"one\n", limit=0)
        made.log(str(run / "a" / "stdout.log"), b"two\n", limit=0)
        made.line(str(run / "journal.jsonl"), b"{}\n")
        made.files(str(run / "evidence-0"), {"x": b"12", "y": b"345"})
        assert made.wait(made.files(str(run / "evidence-0"), {"y": b"6"}), 30)
        made.mirror(str(local))
        words = local / "attempt-0" / "rank-0" / "last_words.json"
        words.write_text("{}")
        words.with_suffix(".part").write_text("{")
        wait_until((run / "attempt-0" / "rank-0" / "last_words.json").exists)
        words.write_text('{"a": 1}')
        made.copy_now(done=str(local / "attempt-0"))
        assert made.flush(30)
        assert made.close(30) == ""
        assert news == []
    assert (run / "a" / "stdout.log").read_bytes() == b"one\ntwo\n"
    assert (run / "journal.jsonl").read_bytes() == b"{}\n"
    assert {p.name: p.read_bytes() for p in (run / "evidence-0").iterdir()} == {"y": b"6"}
    copied = run / "attempt-0" / "rank-0"
    assert {p.name: p.read_text() for p in copied.iterdir()} == {"last_words.json": '{"a": 1}'}
    assert not (local / "attempt-0").exists()
    assert children() == []


def test_what_cannot_be_written_comes_back_in_order() -> None:
    got: list[folder_writer.Refusal] = []
    with writer(Path("/dev")) as (made, _):
        made.when_refused("/dev/full", got.append)
        for text in (b"one\n", b"two\n"):
            made.log("/dev/full", text, limit=0)
        assert made.flush(30)
        assert made.close(30) == ""
    assert got == [("No space left on device", b"one\n", True), ("", b"two\n", True)]


def test_a_writer_that_is_killed_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_writer, "START_AGAIN", 0.1)
    path = tmp_path / "journal.jsonl"
    with writer(tmp_path) as (made, _):
        for number in range(3):
            made.line(str(path), b"%d\n" % number)
            assert made.flush(30)
            process_of(made).kill()
    assert path.read_bytes() == b"0\n1\n2\n"


def test_ctrl_c_and_sigterm_are_not_for_the_writer(tmp_path: Path) -> None:
    with writer(tmp_path) as (made, _):
        process = process_of(made)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(process.pid, number)
        assert made.wait(made.line(str(tmp_path / "j"), b"{}\n"), 30)
        assert process.is_running()


KILLED = """
import os, signal, sys
from pathlib import Path
from holdfast.analysis.job.run_paths import RunPaths
from holdfast.run.launch.places import RunPlaces
paths = RunPaths(sys.argv[1], "run")
places = RunPlaces(paths, lambda news: None)
places.writer.flush(60)
words = Path(places.local.paths.last_words(0, 1))
words.parent.mkdir(parents=True)
words.write_text("{}")
places.writer.log(paths.stdout(0, 1), b"one\\n" * 10_000, limit=0)
number = places.writer.line(paths.folder + "/journal.jsonl", b"{}\\n")
while not places.writer._sent and places.writer._done < number:
    pass
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_launcher_had_sent_is_written_and_what_ranks_left_is_copied(
    tmp_path: Path,
) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)], env=environment, check=False, timeout=60
    )
    assert done.returncode == -signal.SIGKILL
    paths = RunPaths(str(tmp_path), "run")
    wait_until(Path(paths.last_words(0, 1)).exists)
    wait_until(lambda: Path(paths.stdout(0, 1)).read_bytes() == b"one\n" * 10_000)


def test_a_disk_that_is_only_slower_than_the_ranks_print_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_writer, "QUEUE", 100_000)
    path, chunk = tmp_path / "stdout.log", b"x" * 40_000
    with writer(tmp_path) as (made, news):
        for _ in range(200):
            made.log(str(path), chunk, limit=0)
        made.log(str(path), chunk * 10, limit=0)  # larger than the queue
        assert made.close(30) == ""
        assert news == []
    assert path.stat().st_size == 210 * len(chunk)


@pytest.mark.lab
def test_a_disk_that_hangs_holds_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Said once; what does not fit into the queue is counted, and marked where it is missing."""
    monkeypatch.setattr(folder_writer, "QUEUE", 1 << 20)
    monkeypatch.setattr(folder_writer, "TICK", 0.05)
    with disk(tmp_path) as frozen, writer(frozen.folder) as (made, news):
        log, book = str(frozen.folder / "stdout.log"), str(frozen.folder / "journal.jsonl")
        made.log(log, b"before\n", limit=0)
        assert made.flush(30)
        frozen.freeze()
        began = time.monotonic()
        for _ in range(64):
            made.log(log, b"x" * (1 << 16), limit=0)
        made.wait(made.line(book, b"{}\n"), 0.1)
        assert time.monotonic() - began < 20  # the disk is frozen until we say so
        wait_until(lambda: made.hangs)
        frozen.thaw()
        wait_until(lambda: not made.hangs)
        made.log(log, b"after\n", limit=0)
        assert made.flush(30)
        # A busy machine may write so slowly afterwards that it is said once more.
        assert [one.hangs for one in news] == [True, False] * (len(news) // 2)
        assert "of logs" in news[1].sentence
        content = Path(log).read_bytes()
    assert content.startswith(b"before\nxxx")
    assert content.count(b"of output are missing here") == 1
    assert content.endswith(b"\nafter\n")


@pytest.mark.lab
def test_the_end_does_not_wait_for_a_disk_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_writer, "TICK", 0.05)
    with disk(tmp_path) as frozen, writer(frozen.folder) as (made, _):
        book = str(frozen.folder / "journal.jsonl")
        assert made.wait(made.line(book, b"{}\n"), 30)
        frozen.freeze()
        made.line(book, b"{}\n")
        missing = made.close(0.5)
        assert missing.endswith("does not answer: 1 journal lines")
        assert children()
        frozen.thaw()
        folder_writer.LEFT_BEHIND.pop().wait(timeout=30)
        assert Path(book).read_bytes() == b"{}\n{}\n"  # it still wrote what it had been sent
