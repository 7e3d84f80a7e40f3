"""Limits are read right from real processes that have them."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.machine import Limit, Limits, ProcessRoom, Unread
from holdfast.check.readers import limits
from holdfast.check.readers.container import is_whole_user_map
from holdfast.system.proc import parse_status
from tests.check.readers.trees import a_cgroup, elsewhere, join, needs_root
from tests.faults.machines import a_plan

LONELY = 54321
"""a user that has no processes but the test's"""


@pytest.fixture
def narrow_launcher() -> Iterator[int]:
    """A process that may open 64 files, and lives until the test is over."""
    child = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"],
        stdin=subprocess.PIPE,
    )
    with child:
        resource.prlimit(child.pid, resource.RLIMIT_NOFILE, (64, 64))
        yield child.pid


def test_a_launcher_with_few_files(narrow_launcher: int) -> None:
    found = limits.read_launcher_limits(a_plan(launcher_pid=narrow_launcher))
    assert isinstance(found, Limits)
    assert found.pid == narrow_launcher
    assert found.nofile == Limit(soft=64, hard=64)
    mine = limits.read_limits(a_plan())
    assert (found.memlock, found.nproc, found.stack) == (mine.memlock, mine.nproc, mine.stack)
    assert mine.nofile != found.nofile


def test_own_limits() -> None:
    def narrowed() -> Limits:
        # More than this process may have open: the child inherits all of them.
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, 600))
        resource.setrlimit(resource.RLIMIT_STACK, (1 << 20, resource.RLIM_INFINITY))
        return limits.read_limits(a_plan())

    found = elsewhere(narrowed, Limits)
    assert found.nofile == Limit(soft=512, hard=600)
    assert found.stack == Limit(soft=1 << 20, hard=None)


def test_a_launcher_that_is_gone() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        pass
    found = limits.read_launcher_limits(a_plan(launcher_pid=child.pid))
    assert found == Unread(why=f"no process with pid {child.pid} is visible on this machine")


def test_no_launcher_was_named() -> None:
    assert limits.read_launcher_limits(a_plan()) is None


@pytest.mark.lab
def test_an_ordinary_user_is_bound_and_root_is_not() -> None:
    needs_root()

    def as_user() -> Limits:
        os.setuid(LONELY)
        return limits.read_limits(a_plan())

    bound = elsewhere(as_user, Limits)
    assert (bound.ipc_lock, bound.sys_resource) == (False, False)
    here = Path("/proc/self/uid_map").read_text()
    assert limits.read_limits(a_plan()).sys_resource == is_whole_user_map(here)


@pytest.mark.lab
def test_root_of_a_user_namespace_is_bound_although_it_has_every_capability() -> None:
    needs_root()
    code = (
        "import msgspec, sys; from holdfast.check.readers import limits;"
        "sys.stdout.buffer.write(msgspec.json.encode(limits.read_limits(None)))"
    )
    answer = subprocess.run(
        ["unshare", "--user", "--map-root-user", sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        check=True,
    )
    found = msgspec.json.decode(answer.stdout, type=Limits)
    assert (found.ipc_lock, found.sys_resource) == (False, False)


@pytest.mark.lab
def test_threads_of_a_user_are_counted() -> None:
    needs_root()

    def with_four_threads() -> ProcessRoom:
        os.setuid(LONELY)
        for _ in range(4):
            threading.Thread(target=threading.Event().wait, daemon=True).start()
        return limits.read_process_room(a_plan())

    room = elsewhere(with_four_threads, ProcessRoom)
    assert room.user_threads == 4 + 1
    assert room.threads_max > 0
    assert room.pid_max > 0


@pytest.mark.lab
def test_the_process_limit_of_a_real_cgroup() -> None:
    with a_cgroup("pids") as outer:
        inner = outer / "inner"
        inner.mkdir()
        (outer / "pids.max").write_text("50")
        (inner / "pids.max").write_text("70")

        def inside() -> ProcessRoom:
            join(inner)
            return limits.read_process_room(a_plan())

        room = elsewhere(inside, ProcessRoom)
    assert (room.pids_max, room.pids_current) == (50, 1)


@given(st.text())
def test_whatever_a_file_holds_the_answers_come_from_it(text: str) -> None:
    assert all(name in text for name in limits.parse_limits(text))
    assert all(name in text for name in parse_status(text))


BOUND = st.none() | st.integers(min_value=0, max_value=2**63)


@given(st.sampled_from(sorted(limits.ROWS.values())), BOUND, BOUND)
def test_the_kernels_table_is_read_back(name: str, soft: int | None, hard: int | None) -> None:
    shown = ["unlimited" if bound is None else str(bound) for bound in (soft, hard)]
    line = f"{name:<25} {shown[0]:<20} {shown[1]:<20} bytes     \n"
    assert limits.parse_limits(line) == {name: Limit(soft=soft, hard=hard)}
