"""What a job leaves: real processes and shared memory; what others leave is not its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.drill import guardian, leftovers, marked_processes
from holdfast.drill.leftovers import JobLeftovers

HOLDS = """
import mmap, os, sys, time
name = sys.argv[1]
fd = os.open(name, os.O_CREAT | os.O_RDWR)
os.ftruncate(fd, 4096)
kept = mmap.mmap(fd, 4096)
print("ready", flush=True)
time.sleep(600)
"""

GUARDED = """
import pathlib, sys, time
from holdfast.drill import guardian
with guardian.watching(pathlib.Path(sys.argv[1])):
    print("ready", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def job(tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen[str], Path]]:
    """A process that carries the mark of a job, and holds a file in shared memory."""
    witness = tmp_path / "witness"
    shared = Path(f"/dev/shm/holdfast-test-{os.getpid()}")
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(shared)], stdout=subprocess.PIPE, text=True,
        env={**os.environ, marked_processes.MARK: str(witness)},
    )  # fmt: skip
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    yield witness, process, shared
    process.kill()
    process.wait()
    process.stdout.close()
    shared.unlink(missing_ok=True)


def test_processes_and_shared_memory_are_found(
    job: tuple[Path, subprocess.Popen[str], Path], tmp_path: Path
) -> None:
    witness, process, shared = job
    (tmp_path / "tmp").mkdir()
    seen = JobLeftovers(witness, tmp_path / "tmp")
    assert seen.found(seconds=0)[0].startswith(f"process {process.pid}: ")
    seen.look()
    other = JobLeftovers(tmp_path / "another", tmp_path / "tmp")
    other.look()
    assert marked_processes.end(witness) == []
    process.wait()
    assert seen.found(seconds=5) == (str(shared),)
    assert other.found(seconds=0) == ()


def test_a_job_below_a_folder_is_in_it(job: tuple[Path, subprocess.Popen[str], Path]) -> None:
    witness, process, _ = job
    assert marked_processes.find(witness.parent) == [process.pid]
    assert marked_processes.find(f"{witness}-2") == []


def test_the_guardian_ends_what_a_killed_drill_leaves(
    job: tuple[Path, subprocess.Popen[str], Path],
) -> None:
    witness, process, _ = job
    drill = subprocess.Popen(
        [sys.executable, "-c", GUARDED, str(witness.parent)],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert drill.stdout
    assert drill.stdout.readline() == "ready\n"
    assert process.poll() is None
    drill.kill()
    drill.wait()
    drill.stdout.close()
    assert process.wait(60) == -9


def test_the_guardian_of_a_drill_that_ends_well_ends_with_it(tmp_path: Path) -> None:
    with guardian.watching(tmp_path):
        pass
    assert marked_processes.find(tmp_path) == []


def test_what_the_undisturbed_job_leaves_too_is_no_leftover() -> None:
    usual = ("tmp/torchelastic_ab3d_9fx", "tmp/pymp-1a2b3c4d", "/dev/shm/cache")
    left = ("tmp/torchelastic_zz91_0qk", "/dev/shm/cache", "/dev/shm/torch_4711_9", "process 3: x")
    assert leftovers.more_than(left, usual) == ("/dev/shm/torch_4711_9", "process 3: x")
    twice = ("tmp/pymp-11112222", "tmp/pymp-33334444")
    assert leftovers.more_than(twice, usual) == ("tmp/pymp-33334444",)
