"""One job of a drill while it runs: its folder, its processes, its hosts; what acts work on."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from holdfast.analysis.drill.records import RankAttempt, decode_lines
from holdfast.analysis.drill.rehearsal import Rehearsal
from holdfast.drill.layout import JobFolder

if TYPE_CHECKING:
    import subprocess
    import threading

    from holdfast.drill.lab import Host, Lab


class CannotInjectHere(Exception):  # noqa: N818 - it is an answer
    """This machine does not let us do that (no root, no cgroup…): the drill is skipped. A sentence
    that says why."""


class LauncherProcess(NamedTuple):
    """A launcher that was started, on one host."""

    host: str
    process: subprocess.Popen[str]
    reader: threading.Thread
    """of what it prints"""


class Stage:
    """What an act may look at and work on. Everything it changes is undone by `undo`."""

    def __init__(
        self,
        rehearsal: Rehearsal,
        folder: JobFolder,
        *,
        checkpoints: Path | None,
        lab: Lab | None = None,
        hosts: Mapping[str, Host] | None = None,
    ) -> None:
        """`checkpoints`: the folder that the job saves into, as its undisturbed run showed; below
        `folder.work`. None where it saves nothing."""
        self.rehearsal, self.folder, self.checkpoints = rehearsal, folder, checkpoints
        self.lab, self.hosts = lab, dict(hosts or {})
        self.launchers: dict[str, LauncherProcess] = {}
        """by host, the newest of each; filled by the job when it starts them"""
        self.environment: dict[str, str] = {}
        """for the job; an act may add to it before the start"""
        self.flags: list[str] = []
        """of the runner; an act may add to them before the start (torchrun's spelling)"""
        self.wrap: Callable[[list[str]], list[str]] = lambda command: command
        """around the launcher's command (`unshare --mount …`); an act may replace it"""
        self.absent: set[str] = set()
        """hosts whose launcher is not started"""
        self.environment_on: dict[str, dict[str, str]] = {}
        self.flags_on: dict[str, list[str]] = {}
        """of the launcher of one host only, after those of all"""
        self.rendezvous: dict[str, str] = {}
        """further settings of it (`--rdzv-conf`)"""
        self.fewest_hosts: int | None = None
        """with which the job may go on; None: it needs all"""
        self.lost: set[str] = set()
        """hosts whose launcher's exit code does not count: the job goes on without them"""
        self.checks_first = False
        """the runner looks before it starts, as it does without --no-check"""
        self.start_launcher: Callable[[str], object] = lambda _: None
        """starts it again on that host; filled in by the job"""
        self.injected: float | None = None
        """when the fault came (wall seconds), where that was not when `inject` returned"""
        self._undo: list[Callable[[], object]] = []

    # --- the job's processes ---------------------------------------------------------------------

    def attempts(self) -> list[RankAttempt]:
        """Of every rank so far, in the order in which they began."""
        found = [RankAttempt.of(decode_lines(file.read_bytes()))
                 for file in self.folder.records()]  # fmt: skip
        whole = [
            one.earlier(self.folder.clock_ahead.get(one.began.host, 0.0)) for one in found if one
        ]
        return sorted(whole, key=lambda one: one.began.t)

    def attempts_of_rank(self, rank: int) -> list[RankAttempt]:
        return [one for one in self.attempts() if one.began.rank == rank]

    def pid(self, rank: int) -> int:
        """Of the newest process of that rank, as this machine numbers it."""
        newest = self.attempts_of_rank(rank)[-1]
        host = self.hosts.get(newest.began.host)
        return host.outer_pid(newest.began.pid) if host else newest.began.pid

    def launcher(self, rank: int) -> LauncherProcess:
        """Of that rank's host."""
        return self.launchers[self.rehearsal.job.host_of(rank)]

    # --- the gate: the rank waits there, so that a fault comes at its step and not near it -------

    def order(self, how: str, seconds: float = 0.0, *, waits: bool = False) -> None:
        """The rank breaks so when it comes to the step, or ('wait') waits to be broken. Once.
        `waits`: it breaks when it was released."""
        order: dict[str, object] = {"step": self.rehearsal.at_step, "how": how, "seconds": seconds}
        order |= {"waits": True} if waits else {}
        self.folder.order(self.rehearsal.rank).write_text(json.dumps(order))

    def at_the_gate(self) -> bool:
        if not self.rehearsal.at_step or self.folder.order(self.rehearsal.rank).exists():
            return False  # cheap: it is renamed when it is obeyed
        return self.gate_time() is not None

    def gate_time(self) -> float | None:
        gates = [one.gate for one in self.attempts_of_rank(self.rehearsal.rank) if one.gate]
        return gates[0].t if gates else None

    def broke_itself(self) -> float | None:
        """When the rank did; None where it only waits to be broken."""
        gates = [one.gate for one in self.attempts_of_rank(self.rehearsal.rank) if one.gate]
        return gates[0].t if gates and gates[0].how != "wait" else None

    def release(self) -> None:
        """The waiting rank goes on."""
        self.folder.go(self.rehearsal.rank).touch()

    # --- cleaning up -----------------------------------------------------------------------------

    def afterwards(self, undo: Callable[[], object]) -> None:
        """Called when the job is over, whatever happened; the last one first."""
        self._undo.append(undo)

    def undo(self) -> list[str]:
        """What could not be undone, in a sentence each."""
        problems = []
        while self._undo:
            if problem := _problem_of(self._undo.pop()):
                problems.append(problem)
        return problems


def _problem_of(undo: Callable[[], object]) -> str:
    try:
        undo()
    except Exception as problem:  # noqa: BLE001 - the others still have to be undone
        return f"{type(problem).__name__}: {problem}"
    return ""


def wait_until(true: Callable[[], bool], *, seconds: float, every: float = 0.01) -> bool:
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(every)
    return True


def is_running(pid: int) -> bool:
    """One that only waits for its parent to ask how it ended is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
