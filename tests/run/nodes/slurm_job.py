"""A training under a real Slurm on lab hosts: `srun holdfast run`, alone or in a batch script."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from holdfast.drill.lab import Host
from tests.drill.lab.slurm import Slurm
from tests.run.nodes.scenario import TARGET, NodesJob

RUN = (sys.executable, "-m", "holdfast", "run")


class SlurmJob(NodesJob):
    """Nodes are those of the cluster; the screen is that of the login node, where srun runs."""

    def __init__(self, slurm: Slurm, folder: Path, *, steps: int = 100_000) -> None:
        super().__init__(slurm.lab, [slurm.controller, *slurm.nodes], folder)
        self.slurm = slurm
        self.steps_asked = steps

    def __enter__(self) -> SlurmJob:
        return self

    def run_line(self, *flags: str) -> list[str]:
        return [*RUN, *flags, str(TARGET), str(self.folder), str(self.steps_asked)]

    def srun(self, *of_slurm: str, flags: Sequence[str] = (), first: str = "", **more: str) -> None:
        """On two nodes, unless it says otherwise; every line begins with its task's number. `first`
        is done in a shell before the launcher; `more` are variables."""
        wanted = ("--nodes=2", "--ntasks-per-node=1", *of_slurm)
        shell = ["sh", "-c", f'{first}; exec "$@"', "sh"] if first else []
        line = ["srun", "--label", *wanted, *shell, *self.run_line(*flags)]
        environment = {**self.slurm.environment, **more}
        variables = [f"{name}={value}" for name, value in environment.items()]
        self.start(self.slurm.controller, ["env", *variables, *line])

    def sbatch(self, *of_slurm: str, flags: Sequence[str] = ()) -> str:
        """The job's number; its output is in the file `out`."""
        script = self.folder / "job.sh"
        line = shlex.join(["srun", "--label", *self.run_line(*flags)])
        script.write_text(f"#!/bin/sh\nexec {line}\n")
        done = self.slurm.run(
            ["sbatch", "--parsable", "--nodes=2", "--ntasks-per-node=1", "--requeue",
             "--open-mode=append", f"--output={self.folder}/out", f"--chdir={self.folder}",
             *of_slurm, str(script)],
            OMP_NUM_THREADS="1",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def out(self) -> str:
        file = self.folder / "out"
        return file.read_text() if file.exists() else ""

    def printed(self) -> str:
        """What srun printed so far."""
        return "\n".join(line.text for line in [*self.screens[self.slurm.controller.name]])

    def number(self) -> str:
        """Of the job that runs."""
        return self.slurm.run(["squeue", "--noheader", "--format=%i"]).stdout.split()[0]

    def scontrol(self, *words: str) -> None:
        done = self.slurm.run(["scontrol", *words])
        assert done.returncode == 0, done.stderr

    def exit_code(self, seconds: float = 90) -> int:
        code = self.exits(seconds, [self.slurm.controller])[self.slurm.controller.name]
        assert code is not None, self.printed()
        return code

    def wait_for(self, condition: Callable[[], object], seconds: float = 120) -> None:
        until = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < until, f"{self.printed()}\n{self.out()}"
            time.sleep(0.2)


def launcher_on(host: Host) -> int:
    """The pid of the only one there, as this machine numbers it."""
    own = os.readlink(f"/proc/{host.pid}/ns/pid")
    found = [
        int(entry.name)
        for entry in os.scandir("/proc")
        if entry.name.isdigit() and _is_launcher(entry.path, own)
    ]
    return min(found)


def _is_launcher(process: str, namespace: str) -> bool:
    try:
        if os.readlink(f"{process}/ns/pid") != namespace:
            return False
        command = Path(process, "cmdline").read_bytes()
        environment = Path(process, "environ").read_bytes()
    except OSError:
        return False
    if b"\0--launched\0" in command:  # what ssh has started, above the launcher
        return False
    return b"\0holdfast\0run\0" in command and b"\0LOCAL_RANK=" not in environment
