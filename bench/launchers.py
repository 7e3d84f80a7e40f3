"""The launchers that are measured side by side, each as its own documentation wants it started."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from typing import NamedTuple

BIN = os.path.dirname(sys.executable)
ELASTIC = re.compile(r"failed \(exitcode: -?\d+\) local_rank: (\d+)")
"""torch's agent, and those built on it: `failed (exitcode: -9) local_rank: 2 (pid: 4711)`.
NVIDIA's rank monitors complain before that, each about its own rank: that names all of them."""
QUIET = {"PET_REDIRECTS": "3"}
"""--redirects for all that is built on torchrun's parser: accelerate hides the flag"""
LOGS = "--log_dir=logs"


class Launcher(NamedTuple):
    program: str
    arguments: tuple[str, ...]
    ranks: str
    """the flag that says how many"""
    names: re.Pattern[str]
    """a line of its own that names a rank"""
    quiet: dict[str, str]
    """environment that keeps what the ranks print off the screen"""
    package: str = ""
    """what brings it; nothing where our own environment has it"""
    environment: dict[str, str] = {}  # noqa: RUF012 - it is never changed


FT = ("--ft-rank-heartbeat-timeout", "--ft-workload-check-interval")
LAUNCHERS = {
    "holdfast run": Launcher(
        "holdfast",
        ("run", "--no-check"),
        "--nproc-per-node",
        re.compile(r"^holdfast>\s+who\s+rank (\d+)"),
        {},  # its own lines are known by their prefix
    ),
    "torchrun": Launcher("torchrun", ("--standalone", LOGS), "--nproc-per-node", ELASTIC, QUIET),
    # Heartbeats have to be sent by the script: without, these two limits (its defaults, named
    # because it refuses to start without any setting) are never looked at.
    "ft_launcher": Launcher(
        "ft_launcher",
        (f"{FT[0]}=2700", f"{FT[1]}=5", LOGS),
        "--nproc-per-node",
        ELASTIC,
        QUIET,
        "nvidia-resiliency-ext",
    ),
    "ft_launcher +": Launcher(
        "ft_launcher",
        (f"{FT[0]}=5", f"{FT[1]}=1", LOGS),
        "--nproc-per-node",
        ELASTIC,
        QUIET,
        "nvidia-resiliency-ext",
        {"NVRX_HEARTBEATS": "1"},
    ),
    # `--cpu` would start one plain process
    "accelerate": Launcher(
        "accelerate",
        ("launch", "--multi_gpu", LOGS),
        "--num_processes",
        ELASTIC,
        QUIET,
        "accelerate",
    ),
}
LEGEND = "ft_launcher +: with heartbeats sent by the script at each step, limit 5 s"


def command(launcher: Launcher, *, ranks: int, peers: str) -> list[str] | None:
    """How to start it, with the script still to come; None where it is not installed."""
    path = os.pathsep.join(filter(None, (peers, BIN, os.environ.get("PATH"))))
    # What we compare with torch's own must run on the torch of this environment.
    program = shutil.which(launcher.program, path=path if launcher.package else BIN)
    return [program, *launcher.arguments, f"{launcher.ranks}={ranks}"] if program else None


def missing(launcher: Launcher) -> str:
    return f"not installed: `pip install {launcher.package}` beside torch, then --peers ITS_BIN"


def peers_folder() -> str:
    """The one option of a bench."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--peers", default="", metavar="BIN_DIR", help="where ft_launcher and accelerate are"
    )
    return os.path.abspath(folder) if (folder := parser.parse_args().peers) else ""
