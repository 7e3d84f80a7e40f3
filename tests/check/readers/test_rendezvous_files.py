"""file:// stores that the environment names."""

from __future__ import annotations

import os
import time
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from holdfast.check.readers.rendezvous_files import read_rendezvous_files, store_path
from tests.faults.machines import a_plan
from tests.system.sockets import process_that_prints

HOLD = "import sys; f = open(sys.argv[1]); print('ready', flush=True); sys.stdin.read()"


def test_a_leftover_file_is_described(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.write_bytes(b"x" * 40)
    os.utime(store, (time.time() - 3600,) * 2)
    plan = a_plan(environment={"INIT_METHOD": f"file://{store}?rank=0", "OTHER": f"file://{store}"})
    (found,) = read_rendezvous_files(plan)
    assert (found.variable, found.path, found.exists) == ("INIT_METHOD", str(store), True)
    assert found.size == 40
    assert 3600 <= found.age < 3660
    assert found.held_by == ()


def test_a_store_in_use_names_its_holder(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.touch()
    with process_that_prints(HOLD, str(store)) as (pid, _):
        (found,) = read_rendezvous_files(a_plan(environment={"DIST_URL": f"file://{store}"}))
    assert found.held_by == (pid,)


def test_a_fresh_store_is_not_there_yet(tmp_path: Path) -> None:
    plan = a_plan(environment={"rdzv_store": f"file://{tmp_path}/new", "DIST_URL": "tcp://a:1"})
    (found,) = read_rendezvous_files(plan)
    assert not found.exists
    assert found.age == 0


@given(st.text() | st.text().map("file://".__add__))
def test_any_value_is_a_path_or_nothing(value: str) -> None:
    path = store_path(value)
    assert path == "" or path in value or not value.isprintable()
