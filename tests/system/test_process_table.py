"""Reading /proc/PID/stat, whatever a process calls itself."""

from __future__ import annotations

import os

from hypothesis import given
from hypothesis import strategies as st

from holdfast.system.process_table import parse, process_table, row_of


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
    row = parse(f"7 ({name}) S 1 7 5 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 99 0 0")
    assert (row.pid, row.name, row.state, row.parent, row.session) == (7, name, "S", 1, 5)
    assert (row.threads, row.started) == (1, 99)
