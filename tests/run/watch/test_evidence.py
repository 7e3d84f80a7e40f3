"""Evidence of real processes: taken, kept, and what could not be had is listed."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from holdfast.analysis.job.run_paths import RunPaths
from holdfast.analysis.machine import Unread
from holdfast.analysis.scene.gpu import GpuLook
from holdfast.analysis.scene.scene import Death, Recorder, Stack
from holdfast.rank import last_words
from holdfast.run.launch.places import RunPlaces
from holdfast.run.runs.folder_writer import FolderWriter
from holdfast.run.watch import evidence
from holdfast.run.watch.observer import Observer
from holdfast.system import activity
from tests.cli.holdfast_command import wait_until
from tests.run.watched import SLEEP, process, watched


@pytest.fixture(autouse=True)
def _a_loaded_test_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "SECONDS", 30.0)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[FolderWriter]:
    made = FolderWriter(str(tmp_path), tell=lambda news: None)
    yield made
    assert made.close(30) == ""


def test_the_living_are_asked_and_what_they_said_is_kept(
    tmp_path: Path, writer: FolderWriter
) -> None:
    paths = RunPaths(str(tmp_path), "run")
    with (
        process(SLEEP) as child,
        process(SLEEP) as dead,
        watched(tmp_path, child.pid, 0) as living,
        watched(tmp_path, dead.pid, 1) as gone,
    ):
        gone.death = Death(code=-9, at=1.0)
        living.compare(1.0, activity.read(child.pid))
        folder = evidence.take([living, gone], paths, writer=writer, attempt=2, number=3)
        assert folder == paths.evidence(2, 3)
        assert isinstance(living.stack, Stack)
        assert (gone.stack, gone.recorder) == (None, None)
    assert sorted(os.listdir(folder)) == [
        "missing.txt", "rank-0.activity.json", "rank-0.stack.json",
    ]  # fmt: skip
    stack = json.loads(Path(paths.stack(2, 3, 0)).read_text())
    assert stack["frames"][0]["file"] == "<string>"
    assert json.loads(Path(paths.activity(2, 3, 0)).read_text())["state"] == "S"
    assert Path(paths.missing(2, 3)).read_text().startswith("rank-0.recorder.json: ")


def test_a_recorder_that_a_rank_left_is_not_lost_while_it_exits(tmp_path: Path) -> None:
    """It has raised and still lives, but no longer answers."""
    with process(SLEEP) as child, watched(tmp_path, child.pid) as rank:
        Path(last_words.recorder_file(rank.words_file)).write_text('{"entries": []}')
        left = rank.view().recorder
        assert isinstance(left, Recorder)
        evidence.take([rank], None, writer=None, attempt=0, number=0)
        assert rank.view().recorder == left


def test_a_stopped_rank_shows_its_stack_too(tmp_path: Path) -> None:
    with process(SLEEP) as child, watched(tmp_path, child.pid) as rank:
        os.kill(child.pid, signal.SIGSTOP)
        wait_until(lambda: (now := activity.read(child.pid)) is not None and now.state == "T")
        rank.compare(1.0, activity.read(child.pid))
        evidence.take([rank], None, writer=None, attempt=0, number=0)
        assert isinstance(rank.stack, Stack), rank.stack
        # not waited for: its recorder is a thread of the same process
        assert isinstance(rank.recorder, Unread)
        assert "is stopped" in rank.recorder.why


def test_without_a_folder_the_evidence_is_still_used(tmp_path: Path, writer: FolderWriter) -> None:
    (tmp_path / "file").write_text("")
    with process(SLEEP) as child, watched(tmp_path, child.pid) as rank:
        for paths in (None, RunPaths(str(tmp_path / "file"), "run")):
            rank.stack = rank.recorder = None
            assert evidence.take([rank], paths, writer=writer, attempt=0, number=0) == ""
            assert isinstance(rank.stack, Stack)
            assert isinstance(rank.recorder, Unread)


def test_one_that_dies_meanwhile_is_listed_as_missing(tmp_path: Path, writer: FolderWriter) -> None:
    paths = RunPaths(str(tmp_path), "run")
    with process(SLEEP) as child, watched(tmp_path, child.pid) as rank:
        child.kill()
        child.wait()
        folder = evidence.take([rank], paths, writer=writer, attempt=0, number=0)
        assert isinstance(rank.stack, Unread)
    lines = (Path(folder) / "missing.txt").read_text().splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "rank-0.stack.json", "rank-0.activity.json", "rank-0.recorder.json",
    ]  # fmt: skip


def test_however_often_it_stalls_the_folders_are_few(tmp_path: Path) -> None:
    """A job that is told about every minute for a week, over several attempts."""
    paths = RunPaths(str(tmp_path), "run")
    places = RunPlaces(paths, lambda news: None)
    observer = Observer(places=places, memory_kills=lambda: 0)
    try:
        for attempt in range(3):
            observer.ranks_started(attempt, {}, 0.0)
            for _ in range(40):
                observer.take_evidence()
                observer.keep_evidence()
                observer.keep_evidence()  # two sentences may rest on one folder
    finally:
        observer.close()
        assert places.close() == ""
    kept = [sorted(os.listdir(paths.attempt(n))) for n in (0, 2)]
    assert kept[0] == [f"evidence-{n}" for n in (0, 2, 4, 6)]
    assert len(kept[1]) == 16
    assert os.listdir(paths.attempt(1)) == []


@pytest.mark.parametrize(
    ("kernel", "file", "text"),
    [
        (("python[1]: segfault", "b"), "kernel.log", "python[1]: segfault\nb\n"),
        (Unread(why="kernel log not readable: no"), "missing.txt", "kernel.log: kernel log not"),
    ],
)
def test_the_kernels_lines_are_kept_or_listed_as_missing(
    tmp_path: Path,
    writer: FolderWriter,
    kernel: tuple[str, ...] | Unread,
    file: str,
    text: str,
) -> None:
    paths = RunPaths(str(tmp_path), "run")
    folder = evidence.take([], paths, writer=writer, attempt=0, number=0, kernel=kernel)
    assert os.listdir(folder) == [file]
    assert (Path(folder) / file).read_text().startswith(text)


def test_what_the_driver_said_of_gpus_is_kept(tmp_path: Path, writer: FolderWriter) -> None:
    paths = RunPaths(str(tmp_path), "run")
    look = GpuLook(index=0, uuid="GPU-7", busy=3, power=1.0, limit=2.0, lost="GPU is lost")
    folder = evidence.take([], paths, writer=writer, attempt=0, number=0, gpus=(look,))
    kept = (Path(folder) / "gpus.json").read_bytes()
    assert msgspec.json.decode(kept, type=tuple[GpuLook, ...]) == (look,)


def test_nobody_left_is_no_error(tmp_path: Path, writer: FolderWriter) -> None:
    began = time.monotonic()
    folder = evidence.take([], RunPaths(str(tmp_path), "run"), writer=writer, attempt=0, number=0)
    assert os.listdir(folder) == []
    assert time.monotonic() - began < 10
