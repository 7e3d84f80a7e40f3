"""Real processes, looked at from outside as `explain --pid` does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from holdfast.analysis.scene.ras_look import RasLook
from holdfast.analysis.scene.scene import Stack
from holdfast.errors import ConfigError
from holdfast.run.watch import attach, rank_processes
from holdfast.system import activity
from holdfast.system.proc import row_of
from tests.system import ras_server

SLEEPER = "import time; print('up', flush=True); time.sleep(600)"
LAUNCHER = (
    "import os, subprocess, sys, time\n"
    f"script = {SLEEPER!r}\n"
    "ranks = [subprocess.Popen([sys.executable, '-c', script], stdout=subprocess.PIPE,\n"
    "         env={**os.environ, 'RANK': str(n + 4), 'LOCAL_RANK': str(n)}) for n in range(2)]\n"
    "[rank.stdout.readline() for rank in ranks]\n"
    "print('up', flush=True); time.sleep(600)\n"
)


def start(script: str, **environment: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        env={**os.environ, **environment},
        start_new_session=True,
    )
    assert process.stdout
    assert process.stdout.readline() == b"up\n"
    return process


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout
        process.stdout.close()


def test_a_stopped_rank_and_a_sleeping_one(started: list[subprocess.Popen[bytes]]) -> None:
    started += [start(SLEEPER, RANK="3"), start(SLEEPER, RANK="1")]
    os.kill(started[0].pid, signal.SIGSTOP)
    deadline = time.monotonic() + 30
    while (row := row_of(started[0].pid)) is not None and row.state != "T":
        assert time.monotonic() < deadline
    seen = attach.look([process.pid for process in started], seconds=0.2)
    scene = seen.scene
    assert 1 in seen.still
    assert [(view.rank, view.pid) for view in scene.ranks] == [
        (1, started[1].pid),
        (3, started[0].pid),
    ]
    states = {view.rank: view.activity.state for view in scene.ranks if view.activity}
    assert states == {1: "S", 3: "T"}
    assert all(view.alive_at < scene.now for view in scene.ranks), "neither did anything"
    stack = scene.rank(1).stack
    assert isinstance(stack, Stack)
    assert stack.frames[0].file == "<string>"


def test_nccl_is_asked_where_the_ranks_say_that_it_listens(
    started: list[subprocess.Popen[bytes]],
) -> None:
    made = [ras_server.job(7, 6)]
    with ras_server.serving(lambda: made[0]) as port:
        started.append(start(SLEEPER, RANK="0", NCCL_RAS_ADDR=f"127.0.0.1:{port}"))
        made[0] = ras_server.job(7, 6, first_pid=started[0].pid)
        look = attach.look([started[0].pid], seconds=1.1, ask_ras=True).scene.ras
    assert isinstance(look, RasLook)
    assert look.before is not None, "two looks, to see what moved"
    assert started[0].pid in look.answer.pids


def test_a_launcher_stands_for_its_ranks(started: list[subprocess.Popen[bytes]]) -> None:
    started.append(start(LAUNCHER))
    scene, _, world, guessed = attach.look([started[0].pid], seconds=0.1)
    assert (world, guessed) == (None, False)
    assert [(view.rank, view.local_rank) for view in scene.ranks] == [(4, 0), (5, 1)]


NUMBERED = LAUNCHER.replace("'RANK': str(n + 4), 'LOCAL_RANK': str(n)", "'PMI_RANK': str(1 - n)")
SAME = LAUNCHER.replace("'RANK': str(n + 4), 'LOCAL_RANK': str(n)", "'RANK': '0'").replace(
    "time.sleep(600)\n", "ranks[0].wait()\n"
)
TYPED = (
    "import subprocess, sys, time\n"
    f"script = {SLEEPER!r}\n"
    "ranks = [subprocess.Popen([sys.executable, '-c', script, '--rank', str(3 - n)],\n"
    "         stdout=subprocess.PIPE) for n in range(2)]\n"
    "[rank.stdout.readline() for rank in ranks]\n"
    "print('up', flush=True); ranks[0].wait()\n"
)


@pytest.mark.parametrize(
    ("script", "ranks", "guessed"),
    [(NUMBERED, [1, 0], False), (SAME, [0, 1], True), (TYPED, [3, 2], False)],
)
def test_ranks_of_any_launcher(
    started: list[subprocess.Popen[bytes]],
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    ranks: list[int],
    guessed: bool,
) -> None:
    """Numbered by mpirun, all by one variable of a node, or in what was typed. Importing torch
    takes seconds: here every child counts as a process that has it."""
    monkeypatch.setattr(rank_processes, "_with_torch", list)
    monkeypatch.delenv("SLURM_PROCID", raising=False)
    started.append(start(script))
    found = rank_processes.find([started[0].pid])
    assert [found.ranks[pid] for pid in sorted(found.ranks)] == ranks
    assert started[0].pid not in found.ranks
    assert found.guessed is guessed


ONE = LAUNCHER.replace(
    "str(n + 4), 'LOCAL_RANK': str(n)", "'0', 'TORCHELASTIC_RUN_ID': 'x'"
).replace("range(2)", "range(1)")
"""neither the launcher nor anything that it is in has a number"""
NESTED = (
    "import os, subprocess, sys, time\n"
    f"below = subprocess.Popen([sys.executable, '-c', {LAUNCHER!r}], stdout=subprocess.PIPE,\n"
    "        env={**os.environ, 'RANK': '0'})\n"
    "below.stdout.readline()\n"
    "print('up', flush=True); below.wait()\n"
)
"""torchrun, or `accelerate launch`, as the only rank of another launcher"""


@pytest.mark.parametrize(("script", "ranks", "depth"), [(ONE, [0], 1), (NESTED, [4, 5], 2)])
def test_a_launcher_that_has_torch_is_no_rank(
    started: list[subprocess.Popen[bytes]],
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    ranks: list[int],
    depth: int,
) -> None:
    monkeypatch.setattr(rank_processes, "_with_torch", list)
    monkeypatch.delenv("RANK", raising=False)
    started.append(start(script))
    found = rank_processes.find([started[0].pid])
    assert sorted(found.ranks.values()) == ranks
    assert set(found.ranks) == set(activity.descendants(started[0].pid)[depth - 1 :])


def test_a_process_that_is_gone_is_said_so() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    with pytest.raises(ConfigError, match=f"there is no process {process.pid}"):
        attach.look([process.pid])
