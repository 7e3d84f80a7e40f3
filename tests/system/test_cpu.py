"""Who takes the processors, with real neighbours on a real core."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.analysis.machine import Unread
from holdfast.analysis.scene.cpu import Processor
from holdfast.system import activity, cpu
from holdfast.system.cpu import Looker
from tests.check.readers.trees import a_cgroup, elsewhere, join, plant
from tests.system.sockets import wait_for

SPIN = "while True: pass"


@contextlib.contextmanager
def busy(core: int) -> Iterator[int]:
    """A process that does nothing but work, on this core only."""
    pin = f"import os; os.sched_setaffinity(0, {{{core}}})\n{SPIN}"
    with subprocess.Popen([sys.executable, "-c", pin]) as process:
        try:
            wait_for(lambda: os.sched_getaffinity(process.pid) == {core}, seconds=30)
            yield process.pid
        finally:
            process.kill()


def queued(pid: int) -> float:
    seen = activity.read(pid, sockets=False)
    assert seen is not None
    return seen.queued


def test_two_on_one_core_wait_for_each_other() -> None:
    core = min(os.sched_getaffinity(0))
    with busy(core) as rank, busy(core) as neighbour:
        before = queued(rank), queued(neighbour)
        wait_for(lambda: queued(rank) > before[0] + 0.3, seconds=60)
        wait_for(lambda: queued(neighbour) > before[1] + 0.1, seconds=60)


def test_who_waits_for_something_else_waits_for_no_core() -> None:
    with subprocess.Popen(["sleep", "600"]) as sleeper, busy(min(os.sched_getaffinity(0))) as other:
        try:
            wait_for(lambda: (s := activity.read(sleeper.pid)) is not None and s.state == "S")
            before = queued(sleeper.pid)
            spent = activity.read(other)
            assert spent is not None
            wait_for(
                lambda: (s := activity.read(other)) is not None and s.cpu > spent.cpu + 0.3,
                seconds=60,
            )
            assert queued(sleeper.pid) == before
        finally:
            sleeper.kill()


def test_a_neighbour_is_one_who_shares_a_core_with_the_ranks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Looked at from a process that has started none of them, as a launcher sees strangers."""
    monkeypatch.setattr(cpu, "AT_MOST", 1000)  # others may be at work on this machine
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("needs two cores")
    with busy(cores[0]) as rank, busy(cores[0]) as near, busy(cores[1]) as far:

        def look_until_it_is_seen() -> Processor:
            looker = Looker()
            found = looker.look([rank])
            while near not in [who.pid for who in found.neighbours]:
                found = looker.look([rank])
            return found

        found = elsewhere(look_until_it_is_seen, Processor, seconds=60)
    neighbours = {who.pid: who for who in found.neighbours}
    assert far not in neighbours
    assert SPIN in neighbours[near].command
    assert neighbours[near].name.startswith("python")
    assert 0.05 < neighbours[near].cores <= 1.1
    assert found.strangers >= len(neighbours)
    assert found.taken >= neighbours[near].cores
    assert found.cores == 1
    assert found.load > 0


@pytest.mark.lab
def test_a_quota_that_runs_out() -> None:
    with a_cgroup("cpu") as folder:
        (folder / "cpu.cfs_period_us").write_text("20000")
        (folder / "cpu.cfs_quota_us").write_text("5000")

        def busy_inside() -> tuple[Processor, float]:
            join(folder)
            looker, before = Looker(), queued(os.getpid())
            while not (found := looker.look([os.getpid()])).throttled:
                sum(range(1_000_000))
            return found, queued(os.getpid()) - before

        found, waited = elsewhere(busy_inside, tuple[Processor, float], seconds=60)
    assert (found.quota, found.cores) == (0.25, 0.25)
    assert found.throttled is not None
    assert 0 < found.throttled <= 1
    assert waited > 0  # a thread that the quota holds back waits for a core


def test_as_another_kernel_shows_it(tmp_path: Path) -> None:
    root = plant(
        tmp_path,
        {
            "/proc/self/cgroup": "0::/job\n",
            "/proc/self/mountinfo": "9 1 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n",
            "/sys/fs/cgroup/job/cpu.max": "150000 100000\n",
            "/sys/fs/cgroup/job/cpu.stat": "nr_periods 100\nnr_throttled 10\n",
            "/proc/pressure/cpu": "some avg10=31.50 avg60=1.00 avg300=0.00 total=9\n",
        },
    )
    looker = Looker(root)
    stat = tmp_path / "sys/fs/cgroup/job/cpu.stat"
    stat.write_text("nr_periods 150\nnr_throttled 50\n")
    found = looker.look([])
    assert (found.quota, found.throttled, found.pressure) == (1.5, 0.8, 31.5)
    assert found.cores == min(1.5, len(os.sched_getaffinity(0)))
    assert looker.look([]).throttled is None  # no period since


def test_a_machine_that_tells_nothing_is_asked_in_vain(tmp_path: Path) -> None:
    found = Looker(str(tmp_path)).try_to_look([])
    assert not isinstance(found, Unread)
    assert (found.quota, found.throttled, found.pressure) == (None, None, None)
