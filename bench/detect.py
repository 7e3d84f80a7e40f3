"""How soon each launcher names a rank after a fault, and whether that rank is to blame.

Four CPU ranks, an unmodified DDP script, default settings, the fault on rank 2. What the ranks
themselves print goes to files, so that only the launcher's own lines count. `accelerate` and
`ft_launcher` take part where they are installed: on the PATH, or in --peers BIN_DIR.
"""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
import time

from bench.jobs import TRAIN, Job, job
from bench.launchers import LAUNCHERS, LEGEND, Launcher, command, missing, peers_folder

FAULTS = ("kill", "exit", "stop", "sleep")
RANKS, CULPRIT = 4, 2
START = 120.0
"""seconds for the ranks to come to the fault"""
CAP = 30.0
"""seconds after which a launcher that said nothing has said nothing"""


def named(launcher: Launcher, start: list[str], fault: str) -> tuple[float, int] | None:
    """Seconds from the fault to the line, and the rank it names."""
    with tempfile.TemporaryDirectory() as folder:
        mark = os.path.join(folder, "mark")
        environment = {**launcher.quiet, **launcher.environment}
        broken = [*start, TRAIN, "100000", fault, str(CULPRIT), mark]
        with job(broken, folder=folder, environment=environment) as running:
            began = wait_for_mark(running, mark)
            for line in itertools.chain([*running.lines], running.hear(until=began + CAP)):
                found = launcher.names.search(line.text)
                if found and line.at >= began:
                    return line.at - began, int(found[1])
    return None


def wait_for_mark(running: Job, mark: str) -> float:
    """When the rank broke, by its own clock, which is ours too."""
    deadline = time.monotonic() + START
    while time.monotonic() < deadline and running.process.poll() is None:
        for _ in running.hear(until=time.monotonic() + 0.1):
            pass
        if os.path.exists(mark):
            with open(mark, encoding="ascii") as file:
                if text := file.read():
                    return float(text)
    raise RuntimeError("\n".join(line.text for line in running.lines[-20:]) or "no fault injected")


def main() -> int:
    wrong, peers = 0, peers_folder()
    print(f"{'':<14}" + "".join(f"{fault:<22}" for fault in FAULTS))
    for name, launcher in LAUNCHERS.items():
        start = command(launcher, ranks=RANKS, peers=peers)
        print(f"{name:<14}", end="" if start else f"{missing(launcher)}\n", flush=True)
        for fault in FAULTS if start else ():
            assert start
            answer = tried(launcher, start, fault)
            wrong += name == "holdfast run" and not answer.endswith("right")
            print(f"{answer:<22}", end="" if fault != FAULTS[-1] else "\n", flush=True)
    print(LEGEND)
    return 1 if wrong else 0


def tried(launcher: Launcher, start: list[str], fault: str) -> str:
    """A peer that does not come as far as the fault is a result, too."""
    try:
        return words(named(launcher, start, fault))
    except RuntimeError as problem:
        print(f"\n{problem}", file=sys.stderr)
        return "does not start here"


def words(answer: tuple[float, int] | None) -> str:
    if answer is None:
        return f"nothing in {CAP:.0f} s"
    seconds, rank = answer
    return f"{seconds:.2f} s rank {rank} {'right' if rank == CULPRIT else 'WRONG'}"


if __name__ == "__main__":
    sys.exit(main())
