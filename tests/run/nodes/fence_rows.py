"""Nodes whose launcher is stopped, blocked or cut off: do ranks of two attempts ever run at once?

The ranks write when they ran (tests/targets/writes_times.py). Nothing else is believed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from holdfast.drill.lab import Host, Lab
from tests.drill.lab.etcd import Etcd
from tests.run.nodes.scenario import NodesJob

TARGET = Path(__file__).parents[2] / "targets" / "writes_times.py"
NAMES = ("alpha", "bravo", "carol", "delta", "echo")
LASTS = 20.0
"""seconds of the fault: others start again after 12"""
AFTER = 8.0
"""seconds to watch once it is over, and once there is another attempt"""
LONGEST = 60.0
FAULTS = ("launcher stopped", "all processes stopped", "cable out", "cable out, terminal blocked")
WHO = ("member", "coordinator", "coordinator (etcd)")


class FenceRow(NamedTuple):
    nodes: int
    who: str
    fault: str
    lease: float = 0.0
    """seconds; 0 for the default"""

    @property
    def lasts(self) -> float:
        return self.lease + 5.0 if self.lease else LASTS

    @property
    def after(self) -> float:
        return 1.0 if self.lease else AFTER

    @property
    def name(self) -> str:
        return f"{self.nodes} nodes, {self.who}, {self.fault}"


ROWS = [FenceRow(nodes, who, fault) for nodes in (2, 5) for who in WHO for fault in FAULTS]


class Written(NamedTuple):
    at: float
    rank: int
    round: str
    pid: int


class Fenced(msgspec.Struct, kw_only=True):
    rounds: int = 0
    """that wrote anything"""
    old_until: float = 0.0
    """seconds from the fault to the last write of the round before the newest"""
    new_from: float = 0.0
    gap: float | None = None
    """the smallest time between a round's first write and the last of any round before; negative
    where they ran at once; None where no round followed"""
    goes_on: bool = False
    """ranks write at the end"""
    screen: str = ""


class FenceJob(NodesJob):
    """The standard error of `blocked` goes to a pipe that can be filled."""

    def __init__(
        self, lab: Lab, hosts: Sequence[Host], folder: Path, row: FenceRow, etcd: str
    ) -> None:
        least = 1 if row.nodes == 2 else 2
        lease = ["--lease", f"{row.lease:g}"] if row.lease else []
        super().__init__(
            lab, hosts, folder, nnodes=f"{least}:{row.nodes}", flags=["--no-check", *lease],
            typed=_meet_in(etcd) if etcd else None,
        )  # fmt: skip
        self.times = folder / "times"
        self.script = [str(TARGET), str(self.times)]
        self.blocked: dict[str, int] = {}

    def start_with_pipe(self, host: Host) -> None:
        pipe = self.folder / f"{host.name}.stderr"
        os.mkfifo(pipe)
        self.blocked[host.name] = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
        self.start(host, ["bash", "-c", 'exec "$@" 2>"$0"', str(pipe), *self.command(host)])

    def block(self, host: Host) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(self.blocked[host.name], bytes(512))

    def written(self) -> list[Written]:
        text = self.times.read_text() if self.times.exists() else ""
        lines = (line.split() for line in text.rpartition("\n")[0].splitlines())
        return [Written(float(t), int(r), f"{a} {p}", int(pid)) for t, r, a, p, pid in lines]


def _meet_in(etcd: str) -> Callable[[Sequence[Host], Host], list[str]]:
    return lambda *_: ["--rdzv-backend", "etcd", "--rdzv-endpoint", etcd, "--rdzv-id", "lab",
                       "--max-restarts", "9"]  # fmt: skip


def play(row: FenceRow, folder: Path) -> Fenced:
    with Lab() as lab, contextlib.ExitStack() as ending:
        hosts = [lab.host(name) for name in NAMES[: row.nodes]]
        etcd = ""
        if "etcd" in row.who:
            kept = folder / "etcd"
            kept.mkdir()
            etcd = ending.enter_context(Etcd(kept, hosts=[lab.host("etcd0")], lab=lab)).endpoint
        job = FenceJob(lab, hosts, folder / "job", row, etcd)
        ending.enter_context(job)
        with_pipe = "blocked" in row.fault
        for host in hosts:
            if with_pipe and (etcd or host is hosts[0 if "coordinator" in row.who else -1]):
                job.start_with_pipe(host)
            else:
                job.start(host)
        _wait_for(lambda: _ranks(job) == row.nodes, job)
        time.sleep(1.0)
        victim = hosts[0] if "coordinator" in row.who else hosts[-1]
        if etcd:
            victim = next(host for host in hosts if _coordinates(job, host))
        job.mark()
        with _fault(row.fault, job, victim):
            time.sleep(row.lasts)
        until = job.marked + LONGEST
        while time.monotonic() < until and not _is_over(job, row):
            time.sleep(0.2)
        return _judged(job)


def _ranks(job: FenceJob) -> int:
    """Of the newest round."""
    written = job.written()
    return len({w.rank for w in written if w.round == written[-1].round}) if written else 0


def _wait_for(condition: Callable[[], bool], job: FenceJob) -> None:
    until = time.monotonic() + 120.0
    while not condition():
        assert time.monotonic() < until, job.screen()
        time.sleep(0.1)


def _coordinates(job: FenceJob, host: Host) -> bool:
    """It listens on a port that it made up; the screens may be pipes that nothing reads."""
    texts = [line.text for line in job.screens[host.name]]
    if host.name in job.blocked:
        with contextlib.suppress(BlockingIOError):
            texts.append(os.read(job.blocked[host.name], 65536).decode(errors="replace"))
    return any("this node coordinates" in text for text in texts)


@contextlib.contextmanager
def _fault(fault: str, job: FenceJob, host: Host) -> Iterator[None]:
    """And its end."""
    if "blocked" in fault:
        job.block(host)
    if "cable" in fault:
        host.cut()
        yield
        host.restore()
        return
    pids = [job.nodes[host.name].process.pid]
    if fault == "all processes stopped":
        inner = (int(e.name) for e in os.scandir(host.path("/proc")) if e.name.isdigit())
        pids = [host.outer_pid(pid) for pid in inner if pid != 1]
    _signal(pids, signal.SIGSTOP)
    yield
    _signal(pids, signal.SIGCONT)


def _signal(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _is_over(job: FenceJob, row: FenceRow) -> bool:
    now, written = time.monotonic(), job.written()
    if now < job.marked + row.lasts + row.after:
        return False
    newest = min(w.at for w in written if w.round == written[-1].round)
    return job.marked < newest < now - row.after


def _judged(job: FenceJob) -> Fenced:
    written = job.written()
    rounds = list(dict.fromkeys(w.round for w in written))
    spans = [_span(written, name) for name in rounds]
    gaps = [spans[i][0] - max(last for _, last in spans[:i]) for i in range(1, len(spans))]
    seen = Fenced(
        rounds=len(rounds),
        goes_on=time.monotonic() - written[-1].at < 2.0,
        screen=job.screen(),
        gap=min(gaps, default=None),
    )
    if gaps:
        at = gaps.index(min(gaps)) + 1
        seen.old_until = max(last for _, last in spans[:at]) - job.marked
        seen.new_from = spans[at][0] - job.marked
    return seen


def _span(written: Sequence[Written], name: str) -> tuple[float, float]:
    times = [w.at for w in written if w.round == name]
    return min(times), max(times)
