"""How soon each launcher names somebody after a fault, and whether that rank is to blame.

Four CPU ranks, an unmodified DDP script, default settings, the fault on rank 2. What the ranks
themselves print goes to files, so that only the launcher's own lines count. `accelerate` and
`ft_launcher` take part where they are installed.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
import tempfile
import time
from typing import NamedTuple

from bench.jobs import BIN, HOLDFAST, TORCHRUN, TRAIN, Job, job

FAULTS = ("kill", "exit", "stop", "sleep")
RANKS, CULPRIT = 4, 2
START = 120.0
"""seconds for the ranks to come to the fault"""
CAP = 30.0
"""seconds after which a launcher that said nothing has said nothing"""


class Launcher(NamedTuple):
    command: list[str]
    names: re.Pattern[str]
    """a line of its own that names a rank"""


ELASTIC = re.compile(r"\blocal_rank: (\d+)|^\s+rank\s*: (\d+)|\brank[ =](\d+)")
"""torch's agent, and those built on it: `failed (exitcode: -9) local_rank: 2 (pid: 4711)`"""
QUIET = [f"--nproc-per-node={RANKS}", "--redirects=3", "--log-dir=logs"]
LAUNCHERS = {
    "holdfast run": Launcher(
        [*HOLDFAST, f"--nproc-per-node={RANKS}"], re.compile(r"^holdfast>\s+who\s+rank (\d+)")
    ),
    "torchrun": Launcher([*TORCHRUN, "--standalone", *QUIET], ELASTIC),
    "ft_launcher": Launcher([f"{BIN}/ft_launcher", *QUIET], ELASTIC),
    # `--cpu` would start one plain process
    "accelerate": Launcher(
        [f"{BIN}/accelerate", "launch", "--multi_gpu", f"--num_processes={RANKS}",
         "--redirects=3", "--log_dir=logs"],
        ELASTIC,
    ),
}  # fmt: skip


def named(launcher: Launcher, fault: str) -> tuple[float, int] | None:
    """Seconds from the fault to the line, and the rank it names."""
    with tempfile.TemporaryDirectory() as folder:
        mark = os.path.join(folder, "mark")
        command = [*launcher.command, TRAIN, "100000", fault, str(CULPRIT), mark]
        with job(command, folder=folder) as running:
            began = wait_for_mark(running, mark)
            for line in itertools.chain([*running.lines], running.hear(until=began + CAP)):
                found = launcher.names.search(line.text)
                if found and line.at >= began:
                    return line.at - began, int(next(filter(None, found.groups())))
    return None


def wait_for_mark(running: Job, mark: str) -> float:
    """When the rank broke, by its own clock, which is ours too."""
    deadline = time.monotonic() + START
    while time.monotonic() < deadline:
        for _ in running.hear(until=time.monotonic() + 0.1):
            pass
        if os.path.exists(mark):
            with open(mark, encoding="ascii") as file:
                if text := file.read():
                    return float(text)
    raise RuntimeError("\n".join(line.text for line in running.lines[-20:]) or "nobody came")


def main() -> int:
    wrong = 0
    print(f"{'':<14}" + "".join(f"{fault:<22}" for fault in FAULTS))
    for name, launcher in LAUNCHERS.items():
        if not os.path.exists(launcher.command[0]):
            print(f"{name:<14}not installed")
            continue
        print(f"{name:<14}", end="", flush=True)
        for fault in FAULTS:
            answer = named(launcher, fault)
            wrong += name == "holdfast run" and (answer is None or answer[1] != CULPRIT)
            print(f"{words(answer):<22}", end="", flush=True)
        print()
    return 1 if wrong else 0


def words(answer: tuple[float, int] | None) -> str:
    if answer is None:
        return f"nothing in {CAP:.0f} s"
    seconds, rank = answer
    return f"{seconds:.2f} s rank {rank} {'right' if rank == CULPRIT else 'WRONG'}"


if __name__ == "__main__":
    sys.exit(main())
