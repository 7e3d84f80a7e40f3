"""What a healthy training on four lab hosts goes through without a verdict: nothing is ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import msgspec

from holdfast.drill.lab import Host, Lab
from tests.run.nodes.scenario import TRUE_WHERE_BUSY, LauncherName, NodesJob, named_hosts

LONGEST = 240.0
"""seconds: only a job that hangs needs as long"""


def nothing(_: list[Host]) -> None:
    """Hosts as they are."""


@dataclass(frozen=True)
class QuietRow:
    name: str
    what: str
    disturb: Callable[[NodesJob], None] = lambda _: None
    prepare: Callable[[list[Host]], None] = nothing
    asked: tuple[str, ...] = ()
    steps: int = 240
    may_notice: tuple[str, ...] = ()
    """slugs of notices that are true"""


class Quiet(msgspec.Struct, kw_only=True):
    row: str
    seconds: float = 0.0
    notices: list[str] = []
    problems: list[str] = []
    screen: str = ""


def play_quiet(
    row: QuietRow, folder: Path, *, hosts: int = 4, launcher: LauncherName = "holdfast"
) -> Quiet:
    seen = Quiet(row=row.name)
    with Lab() as lab:
        made = named_hosts(lab, hosts)
        row.prepare(made)
        with NodesJob(
            lab, made, folder, steps=row.steps, asked=row.asked, launcher=launcher
        ) as job:
            began = time.monotonic()
            job.start_all()
            try:
                job.wait_for_steps(30)
            except TimeoutError:
                seen.problems.append("did not start")
            else:
                job.mark()
                row.disturb(job)
                _judge(row, job, seen)
            seen.seconds = time.monotonic() - began
            seen.screen = job.screen(last=100)
    return seen


def _judge(row: QuietRow, job: NodesJob, seen: Quiet) -> None:
    codes = job.exits(LONGEST)
    seen.problems += [
        f"{name} runs on" if code is None else f"{name} ended with {code}"
        for name, code in codes.items()
        if code != 0
    ]
    attempts = {step.attempt for steps in job.steps().values() for step in steps}
    if attempts != {0}:
        seen.problems.append(f"attempts {sorted(attempts)}")
    said = {one for host in job.hosts for one in _said(job, host)}
    for kind, slug, reason in sorted(said):
        seen.notices.append(f"{slug}: {reason}")
        if kind == "verdict" or slug not in (*row.may_notice, *TRUE_WHERE_BUSY):
            seen.problems.append(f"{kind} {slug}: {reason}")


def _said(job: NodesJob, host: Host) -> set[tuple[str, str, str]]:
    return {(one.kind, one.slug, one.reason) for one in job.sentences(host, after=0.0)}


# --- disturbances --------------------------------------------------------------------------------


def delay(job: NodesJob) -> None:
    """About 200 ms there and back, never twice the same."""
    pairs = [job.lab.link(a, b) for a, b in combinations(job.hosts, 2)]
    for milliseconds in (100, 60, 120, 90):
        for link in pairs:
            link.restore()
            link.delay(milliseconds)
        time.sleep(4)
    for link in pairs:
        link.restore()


def flap(job: NodesJob) -> None:
    job.hosts[-1].cut()
    time.sleep(5)
    job.hosts[-1].restore()


def stop_launcher(job: NodesJob) -> None:
    _pause(job, job.hosts[-1])


def stop_coordinator(job: NodesJob) -> None:
    _pause(job, job.hosts[0])


def _pause(job: NodesJob, host: Host) -> None:
    job.send(host, signal.SIGSTOP)
    time.sleep(3)
    job.send(host, signal.SIGCONT)


def starve(job: NodesJob) -> None:
    """More that wants to run than there are cores, for ten seconds."""
    busy = f"import time; end = time.time() + 10\nwhile time.time() < end: pass  # {os.getpid()}"
    loops = [
        subprocess.Popen([sys.executable, "-c", busy]) for _ in range(3 * (os.cpu_count() or 1))
    ]
    for loop in loops:
        loop.wait()


def clocks_apart(hosts: list[Host]) -> None:
    hosts[1].clock(2)
    hosts[2].clock(-2)
    hosts[3].clock(0)


def step_clocks(job: NodesJob) -> None:
    job.hosts[3].clock(40)
    time.sleep(3)
    job.hosts[1].clock(-30)


WAITS = ("waiting", "rank-stuck", "slow-rank")
"""the first is what a screen calls a pause that is said and may be none"""
ROWS = (
    QuietRow("as-it-is", "nothing odd"),
    QuietRow("latency", "200 ms there and back, jittering, for 16 s", delay, steps=120,
             may_notice=("slow-rank",)),
    QuietRow("flap", "the cable of a host is out for 5 s", flap,
             may_notice=("node-lost", "peer-unreachable", *WAITS)),
    QuietRow("stopped-launcher", "a launcher is stopped for 3 s", stop_launcher),
    QuietRow("stopped-coordinator", "the coordinator's launcher is stopped for 3 s",
             stop_coordinator),
    QuietRow("starved", "three busy processes a core for 10 s", starve,
             may_notice=WAITS),
    QuietRow("clocks", "wall clocks 2 s apart, two of them stepped meanwhile", step_clocks,
             clocks_apart),
    QuietRow("slow-save", "a checkpoint of 300 MB every 20 steps", asked=("pad=300",), steps=80,
             may_notice=("checkpoint-cadence", *WAITS)),
    QuietRow("evaluation", "one node evaluates for 20 s", asked=("sleep=delta:60:20",), steps=120,
             may_notice=WAITS),
)  # fmt: skip
BY_NAME = {row.name: row for row in ROWS}
