"""What a launch may leave behind, looked for after it: processes, ports, shared memory, folders."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.run.launch import orphans
from holdfast.run.runs import leftovers
from holdfast.system import environments, tcp_table
from holdfast.system.holders import holders
from holdfast.system.proc import ProcessRow, process_table

SHM = Path("/dev/shm")  # noqa: S108 - it is looked at, not written to
SCRIPTS_OWN = ("torchinductor_", "pymp-")
PATIENCE = 5.0
"""seconds for a process that is ending to be gone"""


@dataclass
class Leaks:
    processes: list[str] = field(default_factory=list)
    ports: list[str] = field(default_factory=list)
    shm: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.processes or self.ports or self.shm or self.folders)


class Look:
    """Made before a launch, asked after it. Our own process must adopt orphans meanwhile
    (orphans.Descendants), so that no process escapes by leaving its parent."""

    def __init__(self, runs: Path, temporary: Path) -> None:
        self._runs, self._temporary = runs, temporary
        self._shm = shm_entries()
        self._processes = {(row.pid, row.started) for row in below_us()}

    def leaks(self, ports: Iterable[int]) -> Leaks:
        """What is there now, was not before, and does not go within a moment."""
        ports = list(ports)
        found = Leaks()
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            found = Leaks(
                processes=[f"{row.name} (pid {row.pid})" for row in self.processes()],
                ports=[str(port) for port in ports if is_listened_on(port)],
                shm=unheld(shm_entries() - self._shm),
                folders=[n for n in os.listdir(self._temporary) if not n.startswith(SCRIPTS_OWN)],
            )
            if not found:
                return found
            time.sleep(0.1)
        return found

    def processes(self) -> list[ProcessRow]:
        """By descent, and by the mark in their environment where that was broken."""
        orphans.Descendants("").reap(())
        table = process_table()
        marked = [row for row in table.values() if self._is_marked(row)]
        descended = [r for r in below_us() if (r.pid, r.started) not in self._processes]
        seen = {row.pid: row for row in (*marked, *descended)}
        return [row for row in seen.values() if row.state not in "ZX"]

    def _is_marked(self, row: ProcessRow) -> bool:
        settings = environments.environment(row.pid)
        mark = f"{leftovers.RUN}={self._runs}/".encode()
        return any(setting.startswith(mark) for setting in settings)


def is_rank(pid: int) -> bool:
    """And no child of one, which inherits these words with another's number in them."""
    return f"HOLDFAST_RANK_PID={pid}".encode() in environments.environment(pid)


def below_us() -> list[ProcessRow]:
    table = process_table()
    found, parents = [], {os.getpid()}
    while parents:
        children = [row for row in table.values() if row.parent in parents]
        found += children
        parents = {row.pid for row in children}
    return found


def shm_entries() -> frozenset[str]:
    with contextlib.suppress(FileNotFoundError):
        return frozenset(str(path) for path in SHM.iterdir())
    return frozenset()


def unheld(paths: Iterable[str]) -> list[str]:
    """Those that no process has open or mapped: what another process uses is not ours."""
    paths = list(paths)
    held = holders(paths, mapped=True).pids if paths else {}
    return [path for path in paths if os.path.exists(path) and not held[path]]


def is_listened_on(port: int) -> bool:
    return any(row.state == "LISTEN" for row in tcp_table.read(port))


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.02)
    return True
