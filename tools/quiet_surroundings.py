"""What happens around a job of the quiet table: to its machine, its clock, its disk, its terminal.

A *surrounding* is set up before the job starts and taken away after its end; what happens
*meanwhile* begins once the ranks train.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.frozen_disk import FrozenDisk, NoDiskError, mounted_disk

CLOCK = Path(__file__).parent.parent / "src" / "holdfast" / "drill" / "lab" / "wall_clock.c"
OFFSET = "offset"


class NotHereError(Exception):
    """This machine lacks what the case needs; the sentence says what."""


@dataclass(frozen=True)
class Surrounding:
    runs: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    disk: FrozenDisk | None = None
    """where the runs folder is, if that can be frozen"""


Job = subprocess.Popen[str]


def records(runs: Path) -> list[dict[str, Any]]:
    """Everything in the newest run's journal."""
    journal = runs / "latest" / "journal.jsonl"
    if not journal.exists():
        return []
    return [json.loads(line) for line in journal.read_text().splitlines() if line.endswith("}")]


# --- surroundings ------------------------------------------------------------------------------


@contextlib.contextmanager
def plain(folder: Path) -> Iterator[Surrounding]:
    yield Surrounding(folder)


@contextlib.contextmanager
def own_clock(folder: Path) -> Iterator[Surrounding]:
    """A wall clock that can be set while the job runs; the monotonic one is left alone."""
    if not (compiler := shutil.which("cc")):
        raise NotHereError("it needs a C compiler")
    library, offset = folder / "wall_clock.so", folder / OFFSET
    offset.write_bytes(bytes(8))
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, CLOCK, "-ldl"], check=True)
    environment = {"LD_PRELOAD": str(library), "WALL_CLOCK_OFFSET": str(offset)}
    yield Surrounding(folder, environment=environment)


@contextlib.contextmanager
def disk_of_its_own(folder: Path) -> Iterator[Surrounding]:
    """A file system that can be frozen."""
    try:
        with mounted_disk(folder) as disk:
            yield Surrounding(disk.folder, disk=disk)
    except NoDiskError as problem:
        raise NotHereError(str(problem)) from None


SURROUNDINGS: Mapping[str, Callable[[Path], AbstractContextManager[Surrounding]]] = {
    "": plain,
    "clock": own_clock,
    "disk": disk_of_its_own,
}


# --- meanwhile ---------------------------------------------------------------------------------


def suspend(job: Job, around: Surrounding, seconds: float) -> None:
    """As a laptop's lid or a hypervisor does: no process runs, not even the launcher."""
    _stop([job.pid, *ranks_once_they_train(job, around.runs)], seconds)


def stop_the_launcher(job: Job, around: Surrounding, seconds: float) -> None:
    """Ctrl-Z reaches it alone: the ranks have sessions of their own, and train on."""
    ranks_once_they_train(job, around.runs)
    _stop([job.pid], seconds)


def _stop(pids: list[int], seconds: float) -> None:
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
    finally:
        for pid in pids:  # the launcher first: it sees ranks that are still stopped
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def starve(job: Job, around: Surrounding, seconds: float) -> None:
    """A neighbour who takes all cores, several times over. Each process has a session of its own:
    where the kernel groups by session, as desktops do, they would else get one share together."""
    ranks_once_they_train(job, around.runs)
    time.sleep(seconds / 5)  # so that the job's own pace is known
    stress = ["stress-ng", "--quiet", "--cpu", "1"]
    busy = stress if shutil.which("stress-ng") else [sys.executable, "-c", "while True: pass"]
    many = range(4 * (os.cpu_count() or 1))
    neighbours = [subprocess.Popen(busy, start_new_session=True) for _ in many]
    try:
        time.sleep(seconds)
    finally:
        for neighbour in neighbours:
            neighbour.terminate()
            neighbour.wait()


def set_the_clock(job: Job, around: Surrounding, seconds: float) -> None:
    """By an hour, as the first answer of a time server does, in the middle of a wait."""
    ranks_once_they_train(job, around.runs)
    time.sleep(seconds / 2)
    with (around.runs / OFFSET).open("r+b") as file:
        file.write((3600).to_bytes(8, sys.byteorder))


def freeze_the_disk(job: Job, around: Surrounding, seconds: float) -> None:
    """As a file server that does not answer: every write and every new file hangs."""
    ranks_once_they_train(job, around.runs)
    assert around.disk
    around.disk.freeze()
    try:
        time.sleep(seconds)
    finally:
        around.disk.thaw()


def type_continue(job: Job, around: Surrounding, seconds: float) -> None:
    """The user of a debugger has seen enough."""
    ranks_once_they_train(job, around.runs)
    time.sleep(seconds)
    assert job.stdin
    job.stdin.write("continue\n")
    job.stdin.flush()


def ranks_once_they_train(job: Job, runs: Path) -> list[int]:
    while job.poll() is None:
        told = records(runs)
        if any(record["kind"] == "progress" for record in told):
            return [record["pid"] for record in told if record["kind"] == "rank"]
        time.sleep(0.2)
    return []


MEANWHILE: Mapping[str, Callable[[Job, Surrounding, float], None]] = {
    "continue": type_continue,
    "freeze": freeze_the_disk,
    "set": set_the_clock,
    "starve": starve,
    "stop": stop_the_launcher,
    "suspend": suspend,
}
