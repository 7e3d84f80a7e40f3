"""Which runs live, and ending one: never a process that merely has the right number."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.analysis.job.journal_records import LaunchRecord
from holdfast.analysis.job.run_paths import RunPaths
from holdfast.errors import ConfigError, EnvironmentFailure
from holdfast.run.runs import journal, owner
from holdfast.run.runs.folder import RunPart
from holdfast.run.runs.registry import RunState, find, list_runs, parts, read_run, stop
from holdfast.system.proc import row_of
from tests.run.runs_on_disk import a_run, living_run
from tests.system.sockets import needs, needs_root, run_python, wait_for

RECORDS = (
    {"kind": "launch", "world": 4},
    {"kind": "progress", "attempt": 0, "steps": 100},
    {
        "kind": "verdict",
        "attempt": 0,
        "steps": 120,
        "slug": "rank-killed",
        "reason": "rank 2 was killed by SIGKILL",
    },
    {"kind": "action", "attempt": 0, "steps": 120, "action": "restart"},
    {"kind": "progress", "attempt": 1, "steps": 1},
)


def test_a_run_is_told_by_its_journal(tmp_path: Path) -> None:
    paths = a_run(tmp_path, *RECORDS, {"kind": "end", "attempt": 1, "steps": 40, "exit_code": 0})
    (run,) = list_runs(str(tmp_path))
    assert (run.id, run.folder) == (paths.run_id, paths.folder)
    assert (run.state, run.exit_code, run.world) == (RunState.ENDED, 0, 4)
    assert (run.steps, run.restarts) == (160, 1)
    assert run.said == "restarted after rank-killed"
    assert run.ended
    assert run.started <= run.ended


def test_the_newest_stands_first_and_no_folder_is_no_error(tmp_path: Path) -> None:
    first, second = a_run(tmp_path), a_run(tmp_path)
    (tmp_path / "somebody-elses").mkdir()
    assert [run.id for run in list_runs(str(tmp_path))] == [second.run_id, first.run_id]
    assert list_runs(str(tmp_path / "none")) == []


def test_a_launcher_that_lives_is_running_until_it_is_gone(tmp_path: Path) -> None:
    with living_run(tmp_path) as (run_id, process):
        paths = RunPaths(str(tmp_path), run_id)
        run = read_run(paths)
        assert (run.state, run.pid, run.world) == (RunState.RUNNING, process.pid, 4)
        process.kill()
        # Nobody has waited for it yet: a zombie still has its pid and start time.
        wait_for(lambda: (row := row_of(process.pid)) and row.state == "Z")
        assert read_run(paths).state is RunState.LOST


@pytest.mark.parametrize(
    ("of_launcher", "state"),
    [
        ({}, RunState.LOST),  # this very process, but another start time: a recycled pid
        ({"started_ticks": 1, "pid": 1}, RunState.LOST),
        ({"started_ticks": 0}, RunState.UNKNOWN),  # it could not read its own: it may live
        ({"boot_id": "before-the-reboot"}, RunState.LOST),
        ({"boot_id": "other", "host": "other-machine"}, RunState.UNKNOWN),
        ({"pid_namespace": 1}, RunState.UNKNOWN),  # another container of this machine
    ],
)
def test_a_bare_pid_proves_nothing(
    tmp_path: Path, of_launcher: dict[str, Any], state: RunState
) -> None:
    assert read_run(a_run(tmp_path, **of_launcher)).state is state


def test_damaged_files_leave_a_run_that_can_be_listed(tmp_path: Path) -> None:
    paths = a_run(tmp_path)
    Path(paths.launcher).write_bytes(b'{"pid": "x"}')
    Path(paths.journal).write_bytes(b'{"t": 1, "kind": "end", "exit_code": 3, "new": []}\n\xff\n{')
    (run,) = list_runs(str(tmp_path))
    assert (run.state, run.exit_code, run.steps) == (RunState.ENDED, 3, 0)
    Path(paths.journal).write_bytes(b'{"t": 1, "kind": "end", "exit_code": "?", "steps": []}\n')
    (run,) = list_runs(str(tmp_path))
    assert (run.state, run.exit_code, run.steps) == (RunState.UNKNOWN, None, 0)
    Path(paths.journal).unlink()
    (run,) = list_runs(str(tmp_path))
    assert run.state is RunState.UNKNOWN


def test_a_run_is_found_by_id_beginning_or_latest(tmp_path: Path) -> None:
    first, second = a_run(tmp_path), a_run(tmp_path)
    root = str(tmp_path)
    assert find(root, first.run_id).id == first.run_id
    assert find(root, "latest").id == second.run_id
    length = next(n for n in range(99) if first.run_id[:n] != second.run_id[:n])
    assert find(root, first.run_id[:length]).id == first.run_id
    with pytest.raises(ConfigError, match=second.run_id):
        find(root, first.run_id[: length - 1])
    for wanted in ("nothing", ""):
        with pytest.raises(ConfigError, match="no run '"):
            find(root, wanted)
    with pytest.raises(ConfigError, match="no runs"):
        find(str(tmp_path / "none"), "latest")


def test_stop_asks_first(tmp_path: Path) -> None:
    with living_run(tmp_path) as (run_id, process):
        assert stop(find(str(tmp_path), run_id)) == f"{run_id} stopped"
        assert process.wait(10) == -signal.SIGTERM
        again = stop(find(str(tmp_path), run_id))
        assert again.startswith(f"nothing was stopped: {run_id} is lost, its launcher (pid ")


@pytest.mark.parametrize("state", ["deaf", "stopped"])
def test_stop_kills_what_does_not_answer_and_writes_the_end(tmp_path: Path, state: str) -> None:
    with living_run(tmp_path, "deaf") as (run_id, process):
        if state == "stopped":
            os.kill(process.pid, signal.SIGSTOP)
        said = stop(find(str(tmp_path), run_id), seconds=0.2)
        assert "killed by SIGKILL: it did not exit within 0.2 s after SIGTERM" in said
        assert process.wait(10) == -signal.SIGKILL
    run = find(str(tmp_path), run_id)
    assert (run.state, run.exit_code) == (RunState.ENDED, 137)
    assert run.said.startswith("holdfast stop: killed by SIGKILL")


def test_stop_never_touches_the_next_process_of_that_number(tmp_path: Path) -> None:
    """The run was listed as running; by the time it is stopped, its pid is somebody else's."""
    with living_run(tmp_path) as (run_id, process):
        run = find(str(tmp_path), run_id)
        paths = RunPaths(str(tmp_path), run_id)
        who = owner.read(paths.launcher)
        assert who
        other = msgspec.structs.replace(who, started_ticks=who.started_ticks - 100)
        Path(paths.launcher).write_bytes(msgspec.json.encode(other))
        assert run.state is RunState.RUNNING
        assert stop(run) == f"{run_id} had already ended"
        assert process.poll() is None
        # A signal sent to it would have ended it before it could answer this one.
        os.kill(process.pid, signal.SIGUSR1)
        assert process.wait(10) == -signal.SIGUSR1


def test_stop_believes_no_file_about_a_process(tmp_path: Path) -> None:
    """Where others may write to the folder of runs, they choose which process is the launcher."""
    stranger = subprocess.Popen(["sleep", "600"])
    try:
        with living_run(tmp_path / "real") as (run_id, process):
            row = row_of(stranger.pid)
            assert row
            forged = a_run(tmp_path, pid=stranger.pid, started_ticks=row.started)
            copied = tmp_path / "copies" / run_id
            shutil.copytree(tmp_path / "real" / run_id, copied)
            for paths in (forged, RunPaths(str(copied.parent), run_id)):
                run = find(paths.root, "latest")
                assert run.state is RunState.RUNNING
                with pytest.raises(EnvironmentFailure, match="is not the launcher of"):
                    stop(run)
            assert process.poll() is None
            assert stop(find(str(tmp_path / "real"), "latest")) == f"{run_id} stopped"
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


RECYCLE = """
import os, subprocess, sys, time
from holdfast.run.runs import owner, registry
from holdfast.analysis.job.run_paths import RunPaths
from tests.run.runs_on_disk import a_run, living_run
from pathlib import Path
from typing import Any
with living_run(Path(sys.argv[1])) as (run_id, process):
    pass
gone = time.clock_gettime(time.CLOCK_BOOTTIME)
while time.clock_gettime(time.CLOCK_BOOTTIME) - gone < 0.03:  # start times count in 10 ms
    pass
with open("/proc/sys/kernel/ns_last_pid", "w") as last:
    last.write(str(process.pid - 1))
next_one = subprocess.Popen(["sleep", "60"])
try:
    print(next_one.pid == process.pid)
    run = registry.read_run(RunPaths(sys.argv[1], run_id))
    print(run.state.value, registry.stop(run).partition(" ")[2], next_one.poll())
finally:
    next_one.kill()
    next_one.wait()
"""


@pytest.mark.lab
def test_a_really_recycled_pid(tmp_path: Path) -> None:
    """In a namespace of its own, where the next pid can be chosen."""
    needs_root()
    needs("unshare")
    inside = ("unshare", "--pid", "--fork", "--mount-proc")
    same, said = run_python(RECYCLE, str(tmp_path), inside=inside).splitlines()
    assert same == "True", "the kernel gave another pid: this test shows nothing"
    assert said.startswith("lost was stopped: ")
    assert said.endswith("wrote no end None")


def test_stop_refuses_where_it_cannot_see(tmp_path: Path) -> None:
    run = read_run(a_run(tmp_path, host="b", boot_id="other"))
    with pytest.raises(EnvironmentFailure, match="runs on b and cannot be stopped from here"):
        stop(run)


STOP_AS_NOBODY = """
import os, sys
from holdfast.errors import EnvironmentFailure
from holdfast.run.runs import bundle, journal, owner, registry
run = registry.find(sys.argv[1], "latest")
os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    print(registry.stop(run))
except EnvironmentFailure as problem:
    print(problem)
"""


@pytest.mark.lab
def test_anothers_run_is_not_ended() -> None:
    needs_root()
    with tempfile.TemporaryDirectory() as root, living_run(Path(root)) as (run_id, process):
        os.chmod(root, 0o755)
        paths = RunPaths(root, run_id)
        os.chmod(paths.folder, 0o755)  # its owner has opened it to all
        os.chmod(paths.launcher, 0o644)
        said = run_python(STOP_AS_NOBODY, root)
        assert said == f"{run_id} belongs to user id 0: not permitted to stop it\n"
        assert process.poll() is None
        assert isinstance(journal.read(paths.journal)[-1], LaunchRecord)


def test_folders_of_several_nodes_are_one_run(tmp_path: Path) -> None:
    """On a shared disk: the coordinator's has the run's own name, and is meant by it."""
    other = a_run(tmp_path)
    first = a_run(tmp_path, part=RunPart("a", coordinates=True))
    second = a_run(tmp_path, part=RunPart("b.example.com", first.run_id))
    again = a_run(tmp_path, part=RunPart("b.example.com", first.run_id))
    assert second.run_id == f"{first.run_id}.b"
    assert again.run_id == f"{first.run_id}.b-2"
    root = str(tmp_path)
    runs = list_runs(root)
    everywhere = [run.id for run in parts(runs, first.run_id, where=root)]
    assert everywhere == [first.run_id, second.run_id, again.run_id]
    assert [run.id for run in parts(runs, "latest", where=root)] == everywhere
    assert [run.id for run in parts(runs, second.run_id, where=root)] == [second.run_id]
    assert find(root, first.run_id[:-1]).id == first.run_id
    assert find(root, other.run_id).id == other.run_id
    assert os.readlink(first.latest) == first.run_id
    assert {run.node for run in runs} == {"", "a", "b.example.com"}


def test_on_several_nodes_stop_ends_the_job_and_not_only_this_node(tmp_path: Path) -> None:
    with living_run(tmp_path, node="a") as (run_id, process):
        assert stop(find(str(tmp_path), run_id)) == f"{run_id} stopped"
        assert process.wait(10) == -signal.SIGINT
