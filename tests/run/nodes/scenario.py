"""A training on several lab hosts, started by `holdfast run` or by torchrun: what it does, what
each launcher says and when, and what is left of it on each host.

    with Lab() as lab:
        hosts = named_hosts(lab, 4)
        with NodesJob(lab, hosts, folder, nnodes="2:4") as job:
            job.start_all()
            job.wait_for_steps(30)
            job.mark()
            hosts[3].cut()
            said = job.wait_for_sentence(hosts[:3], "node-lost", seconds=30)
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from holdfast.drill.lab import Host, Lab, LabInterface

TARGET = Path(__file__).parents[2] / "targets" / "nodes_job.py"
NAMES = ("alpha", "bravo", "carol", "delta")
"""words that stand in no sentence by chance"""
PORT = 29400
SENTENCE = re.compile(r"holdfast> (verdict|notice)\[(HOLD\d+)\] ([a-z0-9-]+): (.*)")
START = 120.0
"""seconds for all ranks to import torch and take their first steps, on a busy machine"""
TRUE_WHERE_BUSY = ("cpu-contention",)
"""notices that blame no rank: lab hosts share few cores, and whatever else runs on them"""
ROUNDING = 1e-6
"""relative: another number of ranks adds in another order; a step changes ten times as much"""
LauncherName = Literal["holdfast", "torchrun"]
_OUTER = ("PET_", "TORCH", "NCCL_", "GLOO_", "HOLDFAST", "MASTER_", "SLURM_", "RANK", "WORLD_SIZE")


class Line(NamedTuple):
    at: float
    text: str


class Sentence(NamedTuple):
    at: float
    kind: str
    slug: str
    reason: str


class Step(NamedTuple):
    at: float
    step: int
    world: int
    attempt: int
    value: float


def named_hosts(
    lab: Lab, count: int, *, mtu: int = 1500, interfaces: Sequence[LabInterface] | None = None
) -> list[Host]:
    wanted = interfaces or (LabInterface(mtu=mtu),)
    return [lab.host(name, wanted) for name in NAMES[:count]]


class Node:
    """One launcher on one host, with all that it prints."""

    def __init__(self, host: Host, process: subprocess.Popen[str], before: list[Line]) -> None:
        self.host, self.process = host, process
        self.lines = before
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for text in self.process.stdout:
            self.lines.append(Line(time.monotonic(), text.rstrip("\n")))

    def join(self) -> None:
        self._reader.join(10)


class NodesJob:
    """Ranks' output goes to files under torchrun, as holdfast's own lines have a prefix: what is
    read from a screen is the launcher's."""

    def __init__(
        self,
        lab: Lab,
        hosts: Sequence[Host],
        folder: Path,
        *,
        launcher: LauncherName = "holdfast",
        nnodes: str = "",
        nproc: int = 1,
        steps: int = 100_000,
        asked: Sequence[str] = (),
        flags: Sequence[str] = (),
        endpoint: str = "",
        typed: Callable[[Sequence[Host], Host], list[str]] | None = None,
    ) -> None:
        """`typed`: how the nodes are told to meet, instead of `endpoint`; torchrun then gets no
        help beyond it."""
        self.lab, self.hosts, self.folder, self.launcher = lab, list(hosts), folder, launcher
        self.nnodes = nnodes or str(len(self.hosts))
        self.nproc = nproc
        self.script = [str(TARGET), str(folder), str(steps), *asked]
        self.flags = list(flags)
        self.endpoint = endpoint or f"{self.hosts[0].address}:{PORT}"
        self.typed = typed
        self.nodes: dict[str, Node] = {}
        self.screens: dict[str, list[Line]] = {host.name: [] for host in self.hosts}
        self.marked = self.marked_wall = 0.0
        folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> NodesJob:
        return self

    def __exit__(self, *_: object) -> None:
        """The lab ends its hosts' processes; here only the readers."""
        for node in self.nodes.values():
            with contextlib.suppress(ProcessLookupError):
                node.process.kill()
            node.process.wait()

    # --- to start and to end ---------------------------------------------------------------------

    def command(self, host: Host) -> list[str]:
        program = "holdfast" if self.launcher == "holdfast" else "torch.distributed.run"
        start = [sys.executable, "-m", program, *(["run"] if program == "holdfast" else [])]
        start += ["--nnodes", self.nnodes, "--nproc-per-node", str(self.nproc)]
        if self.typed is not None:
            start += self.typed(self.hosts, host)
        else:
            start += ["--rdzv-backend", "c10d", "--rdzv-endpoint", self.endpoint,
                      "--rdzv-id", "lab", "--max-restarts", "3"]  # fmt: skip
        if self.launcher == "torchrun":
            start += ["--redirects", "3", "--log-dir", "logs"]
            if self.typed is None:
                is_host = int(host is self.hosts[0])
                start += ["--local-addr", host.address, "--rdzv-conf", f"is_host={is_host}"]
        return [*start, *self.flags, *self.script]

    def start(self, host: Host, command: Sequence[str] | None = None) -> Node:
        own = self.folder / host.name  # hosts share the disk: run folders of one name do not
        own.mkdir(exist_ok=True)
        outer: dict[str, str | None] = {k: None for k in os.environ if k.startswith(_OUTER)}
        process = self.lab.start(
            host, command or self.command(host), cwd=own, stderr=subprocess.STDOUT,
            env={**outer, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}, errors="replace",
        )  # fmt: skip
        node = self.nodes[host.name] = Node(host, process, self.screens[host.name])
        return node

    def start_all(self) -> None:
        for host in self.hosts:
            self.start(host)

    def send(self, host: Host, number: int) -> None:
        """To the launcher."""
        os.kill(self.nodes[host.name].process.pid, number)

    def kill_launcher(self, host: Host) -> None:
        self.send(host, signal.SIGKILL)

    def ranks_on(self, host: Host) -> list[int]:
        """Pids of the job's ranks there, as this machine numbers them."""
        own = _namespace(f"/proc/{host.pid}")
        return sorted(
            int(entry.name)
            for entry in os.scandir("/proc")
            if entry.name.isdigit() and _namespace(entry.path) == own and _is_rank(entry.path)
        )

    def end(self, seconds: float = 60.0) -> dict[str, int | None]:
        """SIGTERM to all launchers at once; the exit code of each, None for one that stays."""
        for node in self.nodes.values():
            with contextlib.suppress(ProcessLookupError):
                node.process.terminate()
        return self.exits(seconds)

    def exits(self, seconds: float, hosts: Iterable[Host] | None = None) -> dict[str, int | None]:
        chosen = [self.nodes[host.name] for host in hosts or self.hosts if host.name in self.nodes]
        until = time.monotonic() + seconds
        while time.monotonic() < until and any(node.process.poll() is None for node in chosen):
            time.sleep(0.1)
        return {node.host.name: node.process.poll() for node in chosen}

    def left_on(self, host: Host) -> list[str]:
        """Command lines of the processes on that host, but for the one that holds it."""
        found = []
        for entry in os.scandir(host.path("/proc")):
            if entry.name.isdigit() and entry.name != "1":
                with contextlib.suppress(OSError):
                    command = Path(entry.path, "cmdline").read_bytes().split(b"\0")
                    if any(command):
                        found.append(b" ".join(command).decode(errors="replace")[:160])
        return found

    def orphans(self, hosts: Iterable[Host], seconds: float = 10.0) -> dict[str, list[str]]:
        """What is left on hosts whose launcher has ended, after that time at most."""
        until = time.monotonic() + seconds
        while True:
            left = {host.name: found for host in hosts if (found := self.left_on(host))}
            if not left or time.monotonic() > until:
                return left
            time.sleep(0.2)

    # --- what happens ----------------------------------------------------------------------------

    def mark(self) -> None:
        """From now on: the fault."""
        self.marked, self.marked_wall = time.monotonic(), time.time()

    def since(self) -> float:
        return time.monotonic() - self.marked

    def steps(self, *hosts: Host) -> dict[str, list[Step]]:
        """Of every rank so far, by `HOST.RANK`."""
        names = {host.name for host in hosts or self.hosts}
        folder = self.folder / "progress"
        return {
            file.name: _steps(file.read_text())
            for file in (folder.iterdir() if folder.is_dir() else ())
            if file.name.partition(".")[0] in names
        }

    def newest(self, *hosts: Host) -> Step | None:
        every = [steps[-1] for steps in self.steps(*hosts).values() if steps]
        return max(every, key=lambda step: step.at, default=None)

    def wait_for_steps(self, count: int, *, seconds: float = START) -> float:
        """Until the newest step is that one; when that was seen."""
        until = time.monotonic() + seconds
        while (newest := self.newest()) is None or newest.step < count:
            ended = all(node.process.poll() is not None for node in self.nodes.values())
            if ended or time.monotonic() > until:
                why = "all launchers have ended" if ended else f"not within {seconds:g} s"
                raise TimeoutError(f"step {count}: {why}\n{self.screen()}")
            time.sleep(0.1)
        return time.monotonic()

    def goes_on(self, *, world: int = 0, seconds: float = 60.0) -> Step | None:
        """The first step after the mark of a later attempt (in a world of that size)."""
        before = self.attempt_before()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for steps in self.steps().values():
                for step in steps:
                    later = step.at > self.marked and step.attempt > before
                    if later and world in (0, step.world):
                        return step
            time.sleep(0.2)
        return None

    def attempt_before(self) -> int:
        """The newest attempt at the time of the mark."""
        every = [s.attempt for steps in self.steps().values() for s in steps if s.at < self.marked]
        return max(every, default=0)

    def curve_breaks(self) -> list[str]:
        """Steps that were made again with another result: it did not go on where it was saved."""
        seen: dict[int, Step] = {}
        found = []
        for step in sorted(s for steps in self.steps().values() for s in steps):
            first = seen.setdefault(step.step, step)
            if abs(first.value - step.value) > ROUNDING * abs(first.value):
                found.append(
                    f"step {step.step}: {first.value} in attempt {first.attempt} "
                    f"({first.world} ranks), {step.value} in {step.attempt} ({step.world})"
                )
        return found

    # --- what is said ----------------------------------------------------------------------------

    def sentences(self, host: Host, *, after: float | None = None) -> list[Sentence]:
        since = self.marked if after is None else after
        return [
            Sentence(line.at, found[1], found[3], found[4])
            for line in [*self.screens[host.name]]
            if line.at >= since and (found := SENTENCE.search(line.text))
        ]

    def wait_for_sentence(
        self, hosts: Iterable[Host], *slugs: str, mentions: str = "", seconds: float
    ) -> dict[str, float | None]:
        """Seconds from the mark to the first such sentence on the screen of each host."""
        until = self.marked + seconds
        hosts = list(hosts)
        while True:
            found: dict[str, float | None] = {
                host.name: self.said(host, *slugs, mentions=mentions) for host in hosts
            }
            if None not in found.values() or time.monotonic() > until:
                return found
            time.sleep(0.1)

    def said(self, host: Host, *slugs: str, mentions: str = "") -> float | None:
        for sentence in self.sentences(host):
            if sentence.slug in slugs and mentions in sentence.reason:
                return sentence.at - self.marked
        return None

    def screen(self, *hosts: Host, last: int = 40) -> str:
        chosen = hosts or self.hosts
        return "\n".join(
            f"{host.name} {line.at - self.marked if self.marked else line.at:7.2f} {line.text}"
            for host in chosen
            for line in [*self.screens[host.name]][-last:]
        )

    def judgements(self, host: Host) -> list[dict[str, Any]]:
        """Notices and verdicts after the mark, in the journals of that host's runs."""
        folder = self.folder / host.name
        return [
            record
            for file in folder.glob("runs/*/journal.jsonl")
            if not file.parent.is_symlink()
            for record in map(json.loads, file.read_text().splitlines())
            if record["kind"] in ("notice", "verdict") and record["t"] >= self.marked_wall
        ]


def _steps(text: str) -> list[Step]:
    """A rank that is killed may leave half a line."""
    whole, _, _ = text.rpartition("\n")
    found = (line.split() for line in whole.splitlines())
    return [Step(float(at), int(s), int(w), int(a), float(v)) for at, s, w, a, v in found]


def _is_rank(process: str) -> bool:
    with contextlib.suppress(OSError):
        command = Path(process, "cmdline").read_bytes()
        environment = Path(process, "environ").read_bytes()
        return TARGET.name.encode() in command and b"\0LOCAL_RANK=" in environment
    return False


def _namespace(process: str) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(f"{process}/ns/pid")
    return ""
