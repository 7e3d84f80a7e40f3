"""Ranks without a launcher, told from healthy ones by real processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.analysis.machine import Orphan
from holdfast.check.readers.orphans import find_orphans
from holdfast.check.readers.software import find_torch
from holdfast.system.proc import process_table, row_of
from tests.places import TARGETS
from tests.system.sockets import needs, needs_root, process_that_prints, run_python, wait_for

LAUNCH = """
import json, os, subprocess, sys
marks, new_session = json.loads(sys.argv[1]), sys.argv[2] == "own session"
rank = subprocess.Popen(["sleep", "60"], env={**os.environ, **marks}, start_new_session=new_session)
print(rank.pid, flush=True)
sys.stdin.read()
"""
PORT = str(os.getpid())
"""no port at all, but different in every process that runs these tests"""
ELASTIC = {"TORCHELASTIC_RUN_ID": "run7", "RANK": "2", "LOCAL_RANK": "0", "MASTER_PORT": PORT}
OTHER_LAUNCHER = {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "RANK": "1", "MASTER_PORT": PORT}
BY_HAND = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}
RANK_SCRIPT = TARGETS / "note_pid_and_wait.py"

INSIDE_A_CONTAINER = """
import os, subprocess, sys
from holdfast.check.readers.orphans import find_orphans
from holdfast.system.proc import process_table

assert os.getpid() == 1
os.setsid() if os.getsid(0) != 1 else None
if sys.argv[1] == "torch":
    import torch
marks = {"TORCHELASTIC_RUN_ID": "run7", "RANK": "0", "PATH": os.environ["PATH"]}
own_session = sys.argv[2] == "own session"
rank = subprocess.Popen(["sleep", "60"], env=marks, start_new_session=own_session)
# The kernel closes the pipe that Popen waits for before it has laid the environment out.
while b"run7" not in open(f"/proc/{rank.pid}/environ", "rb").read():
    pass
print(*(orphan.sign for orphan in find_orphans(process_table())), sep=chr(10))
rank.kill()
rank.wait()
"""


def orphan_with(pid: int) -> Orphan | None:
    return next((o for o in find_orphans(process_table()) if o.process.pid == pid), None)


@contextlib.contextmanager
def rank_of_a_killed_launcher(marks: dict[str, str]) -> Iterator[int]:
    with process_that_prints(LAUNCH, json.dumps(marks), "own session") as (launcher, line):
        rank = int(line)
        try:
            assert orphan_with(rank) is None, "while its launcher lives it is no orphan"
            os.kill(launcher, signal.SIGKILL)
            wait_for(lambda: parent_of(rank) not in (launcher, None))
            yield rank
        finally:
            os.kill(rank, signal.SIGKILL)


def parent_of(pid: int) -> int | None:
    row = row_of(pid)
    return row.parent if row else None


def needs_pid_1_as_reaper(rank: int) -> None:
    if parent_of(rank) != 1:
        pytest.skip("needs pid 1 to adopt orphans here")


def test_the_rank_of_a_killed_launcher_is_an_orphan() -> None:
    with rank_of_a_killed_launcher(ELASTIC) as rank:
        needs_pid_1_as_reaper(rank)
        orphan = orphan_with(rank)
    assert orphan is not None
    assert (orphan.rank, orphan.run_id, orphan.process.command) == (2, "run7", "sleep 60")
    assert orphan.sign.startswith("TORCHELASTIC_RUN_ID is set and its parent is pid 1 (")


def test_other_launchers_leave_other_marks() -> None:
    with rank_of_a_killed_launcher(OTHER_LAUNCHER) as rank:
        needs_pid_1_as_reaper(rank)
        orphan = orphan_with(rank)
    assert orphan is not None
    assert (orphan.rank, orphan.run_id) == (1, "")
    assert "LOCAL_RANK is set" in orphan.sign


def test_a_rank_started_by_hand_in_the_background_is_no_orphan() -> None:
    with rank_of_a_killed_launcher(BY_HAND) as rank:
        assert orphan_with(rank) is None


def test_a_service_that_a_living_rank_detached_is_no_orphan() -> None:
    marks = json.dumps(ELASTIC)
    with (
        process_that_prints(LAUNCH, marks, "own session") as (_, living),
        rank_of_a_killed_launcher(ELASTIC) as younger,
    ):
        try:
            assert orphan_with(younger) is None
        finally:
            os.kill(int(living), signal.SIGKILL)


def test_a_new_run_does_not_hide_the_orphans_of_an_older_one() -> None:
    new = json.dumps({**ELASTIC, "MASTER_PORT": "2"})
    with (
        process_that_prints(LAUNCH, new, "own session") as (_, living),
        rank_of_a_killed_launcher(ELASTIC) as rank,
    ):
        try:
            needs_pid_1_as_reaper(rank)
            assert orphan_with(rank) is not None
            assert orphan_with(int(living)) is None
        finally:
            os.kill(int(living), signal.SIGKILL)


@pytest.mark.lab
def test_a_launcher_as_pid_1_of_a_container_has_healthy_children() -> None:
    needs_root()
    needs("unshare")
    if find_torch() is None:
        pytest.skip("needs torch")
    inside = ["unshare", "--pid", "--fork", "--mount-proc"]
    assert run_python(INSIDE_A_CONTAINER, "torch", "own session", inside=inside).strip() == ""
    other = run_python(INSIDE_A_CONTAINER, "no torch", "own session", inside=inside)
    assert "its parent is pid 1 (" in other, "a pid 1 that is no launcher adopted it"
    assert run_python(INSIDE_A_CONTAINER, "no torch", "same", inside=inside).strip() == ""


def test_ranks_of_a_killed_torchrun_are_found(tmp_path: Path) -> None:
    if find_torch() is None:
        pytest.skip("needs torch")
    pids = tmp_path / "pids"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    launcher = subprocess.Popen(
        [*torchrun, str(RANK_SCRIPT), str(pids)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    ranks: list[int] = []
    try:
        wait_for(lambda: pids.exists() and len(pids.read_text().split()) == 2, seconds=60)
        ranks = [int(pid) for pid in pids.read_text().split()]
        assert [orphan_with(rank) for rank in ranks] == [None, None]
        launcher.kill()
        launcher.wait()
        wait_for(lambda: all(parent_of(rank) != launcher.pid for rank in ranks))
        needs_pid_1_as_reaper(ranks[0])
        found = [orphan_with(rank) for rank in ranks]
        assert {orphan.rank for orphan in found if orphan} == {0, 1}
    finally:
        launcher.kill()
        launcher.wait()
        for rank in ranks:
            with contextlib.suppress(ProcessLookupError):
                os.kill(rank, signal.SIGKILL)


AMONG_HIDDEN_PROCESSES = """
import os, signal, subprocess, sys
from holdfast.check.readers.orphans import find_orphans
from holdfast.system.holders import holders
from holdfast.system.proc import process_table
subprocess.run(["mount", "-t", "proc", "-o", f"hidepid={sys.argv[1]}", "proc", "/proc"], check=True)
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
told, tell = os.pipe()
launcher = os.fork()
if launcher == 0:
    marks = {"TORCHELASTIC_RUN_ID": "run7", "RANK": "2", "PATH": os.environ["PATH"]}
    rank = subprocess.Popen(["sleep", "60"], env=marks, start_new_session=True)
    # As above: on a busy machine it is looked at before it has an environment, or may be read.
    seen = b""
    while b"run7" not in seen:
        try:
            seen = open(f"/proc/{rank.pid}/environ", "rb").read()
        except PermissionError:
            pass
    os.write(tell, str(rank.pid).encode())
    os._exit(0)
os.waitpid(launcher, 0)
os.close(tell)
rank = int(os.read(told, 100))
print(*(o.sign for o in find_orphans(process_table()) if o.process.pid == rank))
print(*holders(["/tmp"]).hidden)
os.kill(rank, signal.SIGKILL)
"""


@pytest.mark.parametrize("hidepid", ["1", "2"])
def test_where_proc_hides_the_processes_of_others(hidepid: str) -> None:
    """An ordinary user then sees its own only: not even pid 1, which adopts its orphans."""
    needs_root()
    needs("unshare")
    # The shell stays pid 1, with another process of root; both end with the namespace.
    setup = 'sleep 60 & "$@"'
    inside = ("unshare", "--pid", "--fork", "--mount", "sh", "-c", f"{setup}; exit $?", "sh")
    sign, hidden = run_python(AMONG_HIDDEN_PROCESSES, hidepid, inside=inside).splitlines()
    assert sign == ("TORCHELASTIC_RUN_ID is set and its parent is pid 1 (hidden from this user)")
    assert hidden == "-1", "a process may hold the file, but which one is hidden"
