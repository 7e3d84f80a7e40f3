"""A real Slurm on hosts of a lab: one controller, and a slurmd on every node.

    with lab_or_skip() as lab:
        slurm = Slurm(lab, tmp_path, nodes=3)     # about 1.5 s
        done = slurm.run(["srun", "-N2", "hostname"])

Keys, state, spools and logs are in `tmp_path`; all processes end with their hosts. Nodes are n1,
n2…, each behind a switch of its own; `slurm.run` starts on the controller, which is a login node
too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from holdfast.drill.lab import Host, Lab

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "sinfo")
CPUS = 8


class Slurm:
    """A cluster whose nodes are all idle."""

    def __init__(self, lab: Lab, folder: Path, nodes: int) -> None:
        path = f"{os.environ['PATH']}:/usr/sbin"
        if missing := [name for name in PROGRAMS if not shutil.which(name, path=path)]:
            pytest.skip(f"Slurm is not installed: no {', '.join(missing)}")
        self.lab = lab
        self._folder = folder
        self.controller = lab.host("login")
        self.nodes = [lab.host(f"n{number}") for number in range(1, nodes + 1)]
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": path}
        self._configure()
        socket = folder / "munge.socket"
        self._start(
            self.controller,
            *("munged", "--foreground", "--force", f"--socket={socket}"),
            *(f"--key-file={folder}/munge.key", f"--log-file={folder}/munged.log"),
            *(f"--pid-file={folder}/munged.pid", f"--seed-file={folder}/munged.seed"),
        )
        self._wait_for(socket.exists, "munged")
        self._start(self.controller, "slurmctld", "-D")
        for host in self.nodes:
            self._start(host, "slurmd", "-D", "-N", host.name)
        self._wait_for(self._all_idle, "Slurm")

    def run(self, argv: Sequence[str], **variables: str) -> subprocess.CompletedProcess[str]:
        """On the login node, with these variables set besides."""
        environment = {**self.environment, **variables}
        return self.lab.run(self.controller, argv, env=environment, cwd=self._folder)

    def _configure(self) -> None:
        key = self._folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        (self._folder / "state").mkdir()
        names = [host.name for host in self.nodes]
        settings = [
            "ClusterName=lab",
            f"SlurmctldHost={self.controller.name}({self.controller.address})",
            "SlurmUser=root",
            # a job that was requeued may start again once its old credentials have expired
            f"AuthInfo=socket={self._folder}/munge.socket,cred_expire=5",
            "CredType=cred/munge",
            f"StateSaveLocation={self._folder}/state",
            f"SlurmdSpoolDir={self._folder}/spool_%n",
            f"SlurmctldPidFile={self._folder}/slurmctld.pid",
            f"SlurmdPidFile={self._folder}/slurmd_%n.pid",
            f"SlurmctldLogFile={self._folder}/slurmctld.log",
            f"SlurmdLogFile={self._folder}/slurmd_%n.log",
            "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none",
            "JobAcctGatherType=jobacct_gather/none",
            "SelectType=select/cons_tres",
            "SchedulerType=sched/builtin",
            "TopologyPlugin=topology/tree",
            "MpiDefault=none",
            "ReturnToService=2",
            # more CPUs than this machine has: several tasks a node
            "SlurmdParameters=config_overrides",
            *(
                f"NodeName={host.name} NodeAddr={host.address} CPUs={CPUS} State=UNKNOWN"
                for host in self.nodes
            ),
            "PartitionName=main Nodes=ALL Default=YES State=UP OverSubscribe=FORCE",
        ]
        (self._folder / "slurm.conf").write_text("\n".join(settings) + "\n")
        leaves = [f"SwitchName=leaf-{name} Nodes={name}" for name in names]
        top = f"SwitchName=top Switches={','.join(f'leaf-{name}' for name in names)}"
        (self._folder / "topology.conf").write_text("\n".join([*leaves, top]) + "\n")

    def _start(self, host: Host, *argv: str) -> None:
        log = open(self._folder / f"{argv[0]}-{host.name}.err", "w")  # noqa: SIM115 - Popen's own
        with log:
            self.lab.start(host, argv, env=self.environment, stdout=log, stderr=log)

    def _all_idle(self) -> bool:
        done = self.run(["sinfo", "--noheader", "--format=%D %t"])
        return done.stdout.strip() == f"{len(self.nodes)} idle"

    def _wait_for(self, condition: object, what: str) -> None:
        assert callable(condition)
        deadline = time.monotonic() + 40
        while not condition():
            if time.monotonic() > deadline:
                logs = [f.read_text()[-600:] for f in sorted(self._folder.glob("*.err"))]
                pytest.fail(f"{what} did not start:\n" + "\n".join(logs))
            time.sleep(0.05)
