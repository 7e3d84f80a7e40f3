"""Pauses in a training on two lab hosts, which torchrun goes on from: a launcher or all of a node
is stopped, or a cable is out. Nobody could have started without the paused node."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from holdfast.drill.lab import Host, Lab
from tests.run.nodes.scenario import LauncherName, NodesJob, Step, named_hosts

STEPS_FIRST = 25
"""so that a checkpoint is there"""
STEPS_AFTER = 40
LONGEST = 120.0
"""seconds after the pause in which the job ends, or does not"""


@dataclass(frozen=True)
class PauseRow:
    name: str
    what: str
    pause: Callable[[NodesJob, float], None]
    seconds: float = 9.0
    nnodes: str = "2"
    attempts: int = 1
    """of holdfast"""


class Paused(msgspec.Struct, kw_only=True):
    row: str
    launcher: str
    exits: dict[str, int | None] = {}
    attempts: int = 0
    repeated: int = 0
    """steps done again"""
    resumed: float | None = None
    """seconds from the end of the pause to the next new step"""
    problems: list[str] = []
    said: list[str] = []
    screen: str = ""


def play_pause(row: PauseRow, folder: Path, *, launcher: LauncherName = "holdfast") -> Paused:
    seen = Paused(row=row.name, launcher=launcher)
    with Lab() as lab:
        hosts = named_hosts(lab, 2)
        steps = STEPS_FIRST + int(row.seconds / 0.05) + STEPS_AFTER
        with NodesJob(lab, hosts, folder, launcher=launcher, nnodes=row.nnodes, steps=steps) as job:
            job.start_all()
            try:
                job.wait_for_steps(STEPS_FIRST)
            except TimeoutError as problem:
                seen.problems.append("did not start")
                seen.screen = str(problem)
                return seen
            job.mark()
            row.pause(job, row.seconds)
            over = time.monotonic()
            seen.exits = job.exits(LONGEST)
            _note(job, over, seen)
            seen.screen = job.screen(last=100)
    return seen


def _note(job: NodesJob, over: float, seen: Paused) -> None:
    every = [step for steps in job.steps().values() for step in steps]
    by_attempt: dict[int, list[Step]] = {}
    for step in every:
        by_attempt.setdefault(step.attempt, []).append(step)
    seen.attempts = len(by_attempt)
    furthest = 0
    for _, steps in sorted(by_attempt.items()):
        seen.repeated += max(0, furthest + 1 - min(s.step for s in steps)) if furthest else 0
        furthest = max(furthest, *(s.step for s in steps))
    before = max((s.step for s in every if s.at < over), default=0)
    new = [s.at for s in every if s.at >= over and s.step > before]
    seen.resumed = min(new) - over if new else None
    seen.said = sorted(
        {f"{one.kind} {one.slug}: {one.reason}" for h in job.hosts for one in job.sentences(h)}
    )
    seen.problems += job.curve_breaks()[:3]
    seen.problems += [f"{name} ended with {code}" for name, code in seen.exits.items() if code != 0]


# --- pauses --------------------------------------------------------------------------------------


def coordinators_launcher(job: NodesJob, seconds: float) -> None:
    _stop([job.nodes[job.hosts[0].name].process.pid], seconds)


def members_launcher(job: NodesJob, seconds: float) -> None:
    _stop([job.nodes[job.hosts[1].name].process.pid], seconds)


def whole_member(job: NodesJob, seconds: float) -> None:
    _stop(everything_on(job.hosts[1]), seconds)


def whole_job(job: NodesJob, seconds: float) -> None:
    _stop([pid for host in job.hosts for pid in everything_on(host)], seconds)


def cable(job: NodesJob, seconds: float) -> None:
    job.hosts[1].cut()
    time.sleep(seconds)
    job.hosts[1].restore()


def everything_on(host: Host) -> list[int]:
    """As this machine numbers them; without the process that holds the host."""
    own = os.readlink(f"/proc/{host.pid}/ns/pid")
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and int(entry.name) != host.pid:
            try:
                if os.readlink(f"{entry.path}/ns/pid") == own:
                    found.append(int(entry.name))
            except OSError:
                continue  # it has ended
    return found


def _stop(pids: Iterable[int], seconds: float) -> None:
    pids = list(pids)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


# --- the table -----------------------------------------------------------------------------------

ROWS = (
    PauseRow("coordinator", "the coordinator's launcher is stopped", coordinators_launcher),
    PauseRow("member", "the member's launcher is stopped", members_launcher),
    PauseRow("whole-job", "both launchers and all ranks are stopped together", whole_job),
    PauseRow("whole-job-long", "the same for longer", whole_job, seconds=40.0),
    PauseRow("whole-member", "the member's launcher and its ranks are stopped", whole_member),
    PauseRow("cable", "the cable of the member is out", cable),
    PauseRow("cable-long", "the same for longer than TCP keeps the launchers' connection", cable,
             seconds=25.0),
    PauseRow("cable-range", "the cable of the member is out, and the other may go on alone", cable,
             nnodes="1:2", attempts=2),
)  # fmt: skip
BY_NAME = {row.name: row for row in ROWS}
