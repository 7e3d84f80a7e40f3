"""Shared memory is tried for real, and nothing is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from holdfast.analysis.machine import Shm
from holdfast.check.readers import shm
from tests.check.readers.trees import a_cgroup, elsewhere, join, needs_root
from tests.faults.machines import a_plan

MIB = 1 << 20
IN_A_MOUNT_NAMESPACE = """
import subprocess, sys
import msgspec
from holdfast.check.readers import shm
subprocess.run(["mount", "-t", "tmpfs", "-o", sys.argv[1], "shm", "/dev/shm"], check=True)
answer = (shm.read_shm(None), shm.try_allocation("/dev/shm", int(sys.argv[2])))
sys.stdout.buffer.write(msgspec.json.encode(answer))
"""


def with_dev_shm(options: str, *, wanted: int = 1) -> tuple[Shm, tuple[int, str]]:
    """What is read on a /dev/shm of our own, and what an allocation there brings."""
    needs_root()
    answer = subprocess.run(
        ["unshare", "--mount", sys.executable, "-c", IN_A_MOUNT_NAMESPACE, options, str(wanted)],
        stdout=subprocess.PIPE,
        check=True,
    )
    return msgspec.json.decode(answer.stdout, type=tuple[Shm, tuple[int, str]])


def test_the_real_one() -> None:
    stat = os.statvfs("/dev/shm")
    found = shm.read_shm(a_plan(), wanted=MIB)
    assert found.size == stat.f_blocks * stat.f_frsize
    assert 0 < found.free <= found.size
    assert (found.tried, found.error) == (MIB, "")


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    assert shm.try_allocation(str(tmp_path), MIB) == (MIB, "")
    assert list(tmp_path.iterdir()) == []


def test_no_such_folder(tmp_path: Path) -> None:
    found = shm.read_shm(a_plan(), folder=str(tmp_path / "missing"))
    assert found == Shm(size=0, free=0, tried=0, error="ENOENT")


@pytest.mark.lab
def test_a_small_one_reports_its_size_and_refuses_more() -> None:
    found, more = with_dev_shm("size=8m", wanted=9 * MIB)
    assert found == Shm(size=8 * MIB, free=8 * MIB, tried=8 * MIB, error="")
    assert more == (9 * MIB, "ENOSPC")


@pytest.mark.lab
def test_one_without_a_limit_is_as_large_as_memory() -> None:
    found, _ = with_dev_shm("size=0")
    assert found.size == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert (found.tried, found.error) == (shm.WANTED, "")


@pytest.mark.lab
def test_a_read_only_one() -> None:
    found, _ = with_dev_shm("size=8m,ro")
    assert found.error == "EROFS"


@pytest.mark.lab
def test_one_that_this_user_may_not_use(tmp_path: Path) -> None:
    needs_root()

    def as_user() -> tuple[int, str]:
        os.setuid(54321)
        return shm.try_allocation(str(tmp_path), MIB)

    assert elsewhere(as_user, tuple[int, str]) == (MIB, "EACCES")


@pytest.mark.lab
def test_little_memory_is_not_used_up_by_looking() -> None:
    with a_cgroup("memory") as cgroup:
        (cgroup / "memory.limit_in_bytes").write_text(str(128 * MIB))

        def inside() -> Shm:
            join(cgroup)
            return shm.read_shm(a_plan())

        found = elsewhere(inside, Shm)
    assert 8 * MIB < found.tried <= 16 * MIB
    assert found.error == ""
