"""Who holds a file: by descriptor, by mapping, inside a folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.probe.holders import holders
from tests.machine.children import NOBODY, needs_root, run_python, running

HOLD_OPEN = "import sys; f = open(sys.argv[1]); print('ready', flush=True); sys.stdin.read()"
HOLD_MAPPED = """
import mmap, sys
with open(sys.argv[1], "r+b") as f:
    m = mmap.mmap(f.fileno(), 0)
print('ready', flush=True)
sys.stdin.read()
"""


def test_an_open_file_and_its_folder_are_held(tmp_path: Path) -> None:
    file = tmp_path / "a file"
    other = tmp_path / "a file too"
    for path in (file, other):
        path.write_text("x")
    with running(HOLD_OPEN, str(file)) as (child, _):
        found = holders([str(file), str(other), str(tmp_path)])
    assert found.pids == {str(file): (child.pid,), str(other): (), str(tmp_path): (child.pid,)}


def test_a_mapped_file_is_held_though_its_descriptor_is_closed(tmp_path: Path) -> None:
    file = tmp_path / "nccl-abc"
    file.write_bytes(b"x" * 4096)
    with running(HOLD_MAPPED, str(file)) as (child, _):
        assert child.pid in holders([str(file)], mapped=True).pids[str(file)]


@pytest.mark.lab
def test_processes_of_others_that_cannot_be_seen_are_admitted(tmp_path: Path) -> None:
    needs_root()
    script = f"""
import os
os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
from holdfast.probe.holders import holders
print(holders(["/tmp"]).all_visible)
"""
    assert run_python(script).strip() == "False"
    assert holders([str(tmp_path)]).all_visible == (os.geteuid() == 0)
