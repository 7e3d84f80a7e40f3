"""A token in a file: real files, and a process that waits for one."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.nodes.reach.shared_token import handed_token, offered_token
from holdfast.system.filesystem import filesystem_at

JOB = "lab.4711.0"


@pytest.fixture
def shared(tmp_path: Path) -> set[str]:
    """For these tests, the file system of `tmp_path` is a server's."""
    return {filesystem_at(str(tmp_path))}


def test_the_others_get_the_token_of_the_coordinator(tmp_path: Path, shared: set[str]) -> None:
    home = {"HOME": str(tmp_path)}
    with offered_token(JOB, home, shared=shared) as offered:
        (file,) = tmp_path.iterdir()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        handed = handed_token(JOB, home, seconds=10, shared=shared)
        assert offered is not None
        assert handed is not None
        assert handed.secret == offered.secret
        assert offered.proves
        assert handed.proves
    assert list(tmp_path.iterdir()) == []


def test_a_node_that_is_first_waits_for_the_file(tmp_path: Path, shared: set[str]) -> None:
    home = {"HOME": str(tmp_path)}
    code = f"""if True:
        from holdfast.nodes.reach.shared_token import handed_token
        print("waiting", flush=True)
        print(handed_token({JOB!r}, {home!r}, seconds=30, shared={shared!r}).secret.decode())
    """
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as member:
        assert member.stdout is not None
        assert member.stdout.readline() == "waiting\n"
        with offered_token(JOB, home, shared=shared) as offered:
            assert offered is not None
            assert member.communicate(timeout=60)[0].strip() == offered.secret.decode()


def test_each_start_has_its_own_token(tmp_path: Path, shared: set[str]) -> None:
    home = {"HOME": str(tmp_path)}
    left_behind = tmp_path / f".holdfast-check-{JOB}"
    left_behind.write_text("x" * 64)
    left_behind.chmod(0o600)
    with offered_token(JOB, home, shared=shared) as one:
        handed = handed_token(JOB, home, seconds=10, shared=shared)
    with offered_token(JOB, home, shared=shared) as two:
        pass
    assert one is not None
    assert two is not None
    assert handed is not None
    assert handed.secret == one.secret != two.secret


def test_the_folder_of_submission_where_home_is_local(tmp_path: Path, shared: set[str]) -> None:
    environment = {"HOME": "/proc", "SLURM_SUBMIT_DIR": str(tmp_path)}
    with offered_token(JOB, environment, shared=shared):
        assert [file.name for file in tmp_path.iterdir()] == [f".holdfast-check-{JOB}"]


def test_the_folder_of_submission_where_no_file_can_be_made_at_home(
    tmp_path: Path, shared: set[str]
) -> None:
    home, submitted = tmp_path / "home", tmp_path / "submitted"
    submitted.mkdir()
    home.mkdir()
    (home / f".holdfast-check-{JOB}.new").mkdir()  # as on a read-only mount: no file comes to be
    environment = {"HOME": str(home), "SLURM_SUBMIT_DIR": str(submitted)}
    with offered_token(JOB, environment, shared=shared) as offered:
        assert offered is not None
        handed = handed_token(JOB, environment, seconds=0, shared=shared)
        assert handed is not None
        assert handed.secret == offered.secret


@pytest.mark.parametrize("environment", [{}, {"HOME": "x"}, {"HOME": "/no/such/folder"}])
def test_without_a_shared_folder_there_is_none(environment: dict[str, str]) -> None:
    with offered_token(JOB, environment) as token:
        assert token is None
    assert handed_token(JOB, environment, seconds=30) is None


def test_a_local_disk_is_not_taken_for_a_shared_one(tmp_path: Path) -> None:
    with offered_token(JOB, {"HOME": str(tmp_path)}) as token:
        assert token is None
        assert list(tmp_path.iterdir()) == []


def test_a_file_that_others_could_have_read_is_not_used(tmp_path: Path, shared: set[str]) -> None:
    file = tmp_path / f".holdfast-check-{JOB}"
    file.write_text("x" * 64)
    file.chmod(0o644)
    began = time.monotonic()
    assert handed_token(JOB, {"HOME": str(tmp_path)}, seconds=0.3, shared=shared) is None
    assert time.monotonic() - began >= 0.3, "it waited for one that can be used"


def test_a_job_cannot_choose_another_folder(tmp_path: Path, shared: set[str]) -> None:
    with offered_token("../../x/y", {"HOME": str(tmp_path)}, shared=shared):
        assert [os.path.dirname(file) for file in tmp_path.iterdir()] == [str(tmp_path)]
