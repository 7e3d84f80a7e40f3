"""Real cgroups: the limit holds for what is in it, and nothing of it stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.system import cgroup_files, cgroup_tree
from holdfast.system.own_cgroup import CannotLimitError, Controller, OwnCgroup

pytestmark = pytest.mark.lab
SECONDS = 60.0
MAKE = """
import time
from holdfast.system.own_cgroup import OwnCgroup
print(OwnCgroup("memory").path, flush=True)
time.sleep(600)
"""


def own(controller: Controller) -> OwnCgroup:
    try:
        return OwnCgroup(controller)
    except CannotLimitError as why:
        pytest.skip(f"needs a cgroup of its own: {why}")


def test_what_is_still_in_it_goes_back_to_where_it_came_from() -> None:
    cgroup = own("cpu")
    cgroup.limit_cpu(0.5)
    place = cgroup_tree.find("cpu")
    assert place is not None
    child = subprocess.Popen(["sleep", "600"])
    try:
        cgroup.add(child.pid)
        inside = cgroup_files.read(cgroup.path, "cgroup.procs").split()
        assert inside == [str(child.pid)]
        assert cgroup_files.quota(place._replace(folders=(cgroup.path,))) == (0.5, cgroup.path)
        cgroup.lift()
        assert cgroup_files.quota(place._replace(folders=(cgroup.path,))) is None
        cgroup.remove()
        assert not os.path.exists(cgroup.path)
        assert child.poll() is None
        assert str(child.pid) in cgroup_files.read(place.folders[0], "cgroup.procs").split()
    finally:
        child.kill()
        child.wait()


def test_it_goes_with_a_process_that_is_killed() -> None:
    own("memory").remove()
    maker = subprocess.Popen([sys.executable, "-c", MAKE], stdout=subprocess.PIPE, text=True)
    assert maker.stdout is not None
    path = Path(maker.stdout.readline().strip())
    assert path.is_dir()
    maker.send_signal(signal.SIGKILL)
    maker.communicate()
    end = time.monotonic() + SECONDS
    while path.exists() and time.monotonic() < end:
        time.sleep(0.02)
    assert not path.exists()
