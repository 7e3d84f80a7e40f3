"""What a job leaves behind: processes, files in /dev/shm, files in its folder for temporary ones.

Other jobs of the machine come and go meanwhile. So only what was seen in the hands of the job's own
processes, or carries their number in its name, is the job's.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from holdfast.drill import marked_processes

SHM = "/dev/shm"  # noqa: S108 - what is looked at, not written to
OF_KILLED = "pymp-"
"""Python's multiprocessing keeps its sockets there: a process that is killed cannot remove it"""
_NUMBER = re.compile(r"\d+")
_FIXED = re.compile(r"tmp|[A-Za-z.]*")
"""how names of temporary files begin, before their random part"""


class JobLeftovers:
    """Looks now and then while the job runs, and once when it is over."""

    def __init__(
        self, witness: Path, tmp: Path, shared_memory: Mapping[str, Path] | None = None
    ) -> None:
        """`shared_memory`: of each lab host, as seen from here; else this machine's."""
        self._witness, self._tmp = witness, tmp
        self._folders = shared_memory or {"": Path(SHM)}
        self._pids: set[int] = set()
        self._shared: set[str] = set()

    def look(self) -> None:
        for pid in marked_processes.find(self._witness):
            self._pids.add(pid)
            self._shared |= _in_shared_memory(pid)

    def found(self, *, seconds: float) -> tuple[str, ...]:
        """What is still there after that time at most."""
        until = time.monotonic() + seconds
        while (pids := marked_processes.find(self._witness)) and time.monotonic() < until:
            time.sleep(0.1)
        left = [f"process {pid}: {marked_processes.command(pid)}" for pid in pids]
        return tuple(left + self._shared_files() + self._temporary_files())

    def _shared_files(self) -> list[str]:
        ours = {str(pid) for pid in self._pids}
        return [
            f"{host}{':' * bool(host)}{SHM}/{name}"
            for host, folder in self._folders.items()
            if folder.is_dir()
            for name in sorted(os.listdir(folder))
            # all of a lab host's is the job's own
            if host or name in self._shared or ours & set(_NUMBER.findall(name))
        ]

    def _temporary_files(self) -> list[str]:
        names = sorted(os.listdir(self._tmp))
        return [f"tmp/{name}" for name in names if not name.startswith(OF_KILLED)]


def more_than(left: tuple[str, ...], usual: tuple[str, ...]) -> tuple[str, ...]:
    """What the undisturbed job does not leave as well: names are compared by their kind, as many
    have a random part."""
    budget = Counter(_kind(one) for one in usual)
    found = []
    for one in left:
        kind = _kind(one)
        if budget[kind]:
            budget[kind] -= 1
        else:
            found.append(one)
    return tuple(found)


def _kind(name: str) -> str:
    folder, slash, file = name.rpartition("/")
    fixed = _FIXED.match(file)
    return f"{folder}{slash}{fixed[0] if fixed else ''}"


def _in_shared_memory(pid: int) -> set[str]:
    found = set()
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines():
            if f" {SHM}/" in line and not line.endswith("(deleted)"):
                found.add(line.rpartition("/")[2])
    return found
