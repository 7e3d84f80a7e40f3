"""What programs and native code may write inside the fence; and what is said where none is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.drill import launching, marked_processes, write_fence
from holdfast.drill.launching import JobCommand
from tests.drill.test_on_hosts import Shell, a_stage
from tests.places import ROOT

WITHOUT = [sys.executable, "-m", "tests.no_landlock"]


def inside(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    command = write_fence.around(["bash", "-c", script], [f"{folder}/", "/not/there"])
    return subprocess.run(command, cwd=folder.parent, capture_output=True, text=True, check=False)


def test_a_program_changes_nothing_outside(tmp_path: Path) -> None:
    own, foreign = tmp_path / "own", tmp_path / "foreign"
    own.mkdir()
    foreign.mkdir()
    (foreign / "kept").write_text("kept")
    tried = ("echo x > foreign/kept", "echo x > foreign/new", "rm foreign/kept",
             "mv foreign/kept own/", "mkdir foreign/new", "truncate -s 0 foreign/kept",
             "ln -s kept foreign/new", "mkfifo foreign/new", "rmdir foreign")  # fmt: skip
    done = inside(own, "; ".join(tried))
    if not write_fence.problem():
        assert [path.name for path in foreign.iterdir()] == ["kept"]
        assert (foreign / "kept").read_text() == "kept"
        assert done.stderr.count("Permission denied") == len(tried)


def test_a_job_writes_into_its_own_folder_for_temporary_files_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """/tmp is that of all users: a program may find there what another one's job needs."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    stage = a_stage(tmp_path)
    stage.environment = {"PATH": os.environ["PATH"], "TMPDIR": str(stage.folder.tmp),
                         marked_processes.MARK: str(stage.folder.witness)}  # fmt: skip
    tries = "echo x > $TMPDIR/own; for d in /tmp /var/tmp; do mkdir $d/hd-test-$$ || echo refused"
    job = JobCommand(Shell(f"{tries} $d; rmdir $d/hd-test-$$ 2>/dev/null; done"), (), (), 1.0)
    launching.start_one(stage, job, "")
    launching.reap(stage)
    assert (stage.folder.tmp / "own").exists()
    said = stage.folder.screen("").read_text()
    assert "refused /tmp" in said
    assert "refused /var/tmp" in said


def test_without_a_fence_a_command_that_is_to_be_inside_one_is_not_started(tmp_path: Path) -> None:
    inside = write_fence.around(["touch", str(tmp_path / "started")], [str(tmp_path)])
    done = subprocess.run(
        [*WITHOUT, *inside], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == write_fence.NO_FENCE
    assert "no Landlock" in done.stderr
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize(
    ("typed", "said", "makes"),
    [
        ([], ["this kernel has no Landlock", "holdfast drill --unfenced"], []),
        (["--unfenced"], ["unfenced, since this kernel has no Landlock", "write and remove any",
                          "the job does not end well"], ["drills"]),
    ],
)  # fmt: skip
def test_a_drill_that_cannot_be_fenced_is_asked_for_by_hand(
    tmp_path: Path, typed: list[str], said: list[str], makes: list[str]
) -> None:
    (tmp_path / "train.py").write_text("raise SystemExit(3)\n")
    held = subprocess.run(
        [*WITHOUT, sys.executable, "-m", "holdfast", "drill", *typed, "train.py"], cwd=tmp_path,
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert held.returncode == 2
    assert [words for words in said if words not in held.stderr] == [], held.stderr
    assert sorted({entry.name for entry in tmp_path.iterdir()} - {"train.py"}) == makes


def test_what_the_kernel_cannot_stop_is_said_before_anything_runs(tmp_path: Path) -> None:
    if write_fence.problem():
        return
    (tmp_path / "train.py").write_text("raise SystemExit(3)\n")
    held = subprocess.run(
        [sys.executable, "-m", "holdfast", "drill", "--writes-to", "there", "train.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    first = held.stderr.splitlines()[0]
    assert f"only to the drill's folder, {tmp_path}/there and caches; " in first
    assert "can still chmod, chown" in first


def test_inside_everything_works_as_ever(tmp_path: Path) -> None:
    """A save that is renamed from folder to folder, as checkpoints are."""
    own = tmp_path / "own"
    own.mkdir()
    done = inside(own, "cd own && mkdir a b && echo x > a/part && mv a/part b/whole && ln b/whole "
                       "a/again && rm a/again && echo > /dev/null && exit 3")  # fmt: skip
    assert (done.returncode, done.stderr) == (3, "")
    assert (own / "b" / "whole").read_text() == "x\n"


def test_the_command_keeps_its_process_and_its_environment(tmp_path: Path) -> None:
    command = write_fence.around(["bash", "-c", "echo $$ $GIVEN"], [str(tmp_path)])
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "GIVEN": "this"}
    )
    out, _ = process.communicate()
    assert out.split() == [str(process.pid), "this"]
