"""Reading /proc/PID/stat, whatever a process calls itself."""

from __future__ import annotations

import os
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from holdfast.system.proc import (
    environment,
    open_files,
    parse_stat,
    pids,
    process_table,
    row_of,
    status,
)


def test_our_own_row() -> None:
    row = process_table()[os.getpid()]
    assert row.parent == os.getppid()
    assert row.session == os.getsid(0)
    assert not row.is_kernel
    assert row.threads == len(os.listdir("/proc/self/task"))


def test_a_process_that_is_gone_has_no_row() -> None:
    assert row_of((1 << 22) + 1) is None


@given(name=st.text(max_size=15).filter(lambda text: "\n" not in text))
def test_any_name_is_read_back(name: str) -> None:
    row = parse_stat(f"7 ({name}) S 1 7 5 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 99 0 0")
    assert (row.pid, row.name, row.state, row.parent, row.session) == (7, name, "S", 1, 5)
    assert (row.threads, row.started) == (1, 99)


@given(st.text(), st.integers(0), st.integers(0), st.integers(0))
def test_any_process_name_is_read_past(name: str, faults: int, user: int, system: int) -> None:
    row = parse_stat(f"7 ({name}) R 1 7 5 0 -1 0 0 0 {faults} 0 {user} {system}{' 0' * 8}")
    assert (row.major_faults, row.ticks) == (faults, user + system)


def test_pids_are_listed_in_rising_order() -> None:
    found = pids()
    assert os.getpid() in found
    assert found == sorted(found)


def test_our_own_status_and_descriptors() -> None:
    assert int(status(os.getpid())["PPid"]) == os.getppid()
    with open(__file__, encoding="utf-8"):
        assert os.path.realpath(__file__) in open_files(os.getpid())
    assert os.path.realpath(__file__) not in open_files(os.getpid())


def test_the_environment_a_process_was_started_with() -> None:
    program = [sys.executable, "-c", "print(flush=True); input()"]
    given = {"RANK": "3", "EMPTY": "", "ODD": "a=b"}
    with subprocess.Popen(
        program, env=given, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout
        child.stdout.readline()
        found = environment(child.pid)
        marked = environment(child.pid, only_with=("RANK",))
        unmarked = environment(child.pid, only_with=("LOCAL_WORLD_SIZE",))
        child.communicate("\n")
    assert found.items() >= given.items()
    assert marked == found
    assert unmarked == {}
    assert environment((1 << 22) + 1) == {}
