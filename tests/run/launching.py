"""Run the launcher for real, with a watcher that follows a plan, and end it whatever happens."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.places import TARGETS

LAUNCHER = [sys.executable, str(TARGETS / "launch_with.py")]


def surroundings() -> dict[str, str]:
    """No settings of an outer job."""
    outer = ("PET_", "TORCH", "NCCL_", "OMP_")
    return {name: value for name, value in os.environ.items() if not name.startswith(outer)}


@contextlib.contextmanager
def launched(folder: Path, plan: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    folder.mkdir(exist_ok=True)
    launcher = subprocess.Popen(
        [*LAUNCHER, str(folder), plan, *arguments], env=surroundings(), cwd=TARGETS,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
        start_new_session=True,
    )  # fmt: skip
    try:
        yield launcher
    finally:
        for call in calls(folder):
            for leader in call.get("pids", ()):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(leader, signal.SIGKILL)
        launcher.kill()
        launcher.communicate()


def finish(launcher: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = launcher.communicate(timeout=120)
    return launcher.returncode, out, err


def launch(folder: Path, plan: str, *arguments: str) -> tuple[int, str, str]:
    with launched(folder, plan, *arguments) as launcher:
        return finish(launcher)


def calls(folder: Path) -> list[dict[str, Any]]:
    """What the watcher was asked, in order."""
    notes = folder / "calls.jsonl"
    if not notes.exists():
        return []
    return [json.loads(line) for line in notes.read_text().splitlines() if line.endswith("}")]


def log(folder: Path, attempt: int, rank: int, name: str = "stdout") -> str:
    return (folder / "run" / f"attempt-{attempt}" / f"rank-{rank}" / f"{name}.log").read_text()


def lives(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"
