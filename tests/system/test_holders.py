"""Who holds a file: by descriptor, by mapping, inside a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.system.holders import holders
from tests.system.sockets import BECOME_NOBODY, needs_root, process_that_prints, run_python

HOLD_OPEN = "import sys; f = open(sys.argv[1]); print('ready', flush=True); sys.stdin.read()"
HOLD_MAPPED = """
import mmap, sys
with open(sys.argv[1], "r+b") as f:
    m = mmap.mmap(f.fileno(), 0)
print('ready', flush=True)
sys.stdin.read()
"""

LOOK_AT_A_CHILD = """
PR_SET_DUMPABLE = 4  # a process that gives up privileges is hidden until it says otherwise
ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, int(sys.argv[1] == "open"), 0, 0, 0)
child = os.fork() or signal.pause()
print(*sorted(holders(['/tmp']).hidden))
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
"""


def test_an_open_file_and_its_folder_are_held(tmp_path: Path) -> None:
    file = tmp_path / "a file"
    other = tmp_path / "a file too"
    for path in (file, other):
        path.write_text("x")
    with process_that_prints(HOLD_OPEN, str(file)) as (pid, _):
        found = holders([str(file), str(other), str(tmp_path)])
    assert found.pids == {str(file): (pid,), str(other): (), str(tmp_path): (pid,)}


def test_a_mapped_file_is_held_though_its_descriptor_is_closed(tmp_path: Path) -> None:
    file = tmp_path / "nccl-abc"
    file.write_bytes(b"x" * 4096)
    with process_that_prints(HOLD_MAPPED, str(file)) as (pid, _):
        assert pid in holders([str(file)], mapped=True).pids[str(file)]


@pytest.mark.lab
def test_the_users_of_hidden_processes_are_named() -> None:
    """A user may not look into root's processes, nor into its own when they hide themselves."""
    needs_root()
    code = "import ctypes, signal, sys\nfrom holdfast.system.holders import holders\n"
    # Servers of other tests have users of their own.
    seen = {*run_python(code + BECOME_NOBODY + LOOK_AT_A_CHILD, "open").split()}
    assert seen & {"0", "65534"} == {"0"}
    seen = {*run_python(code + BECOME_NOBODY + LOOK_AT_A_CHILD, "hidden").split()}
    assert seen & {"0", "65534"} == {"0", "65534"}
