"""A stage whose ranks are small Python programs, started as a launcher's command is; no torch."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from holdfast.analysis.drill.rehearsal import JobShape, Rehearsal
from holdfast.drill.layout import JobFolder
from holdfast.drill.stage import LauncherProcess, Stage

SECONDS = 60.0
"""within which a condition must come true on a busy machine"""


def a_stage(folder: Path, *, checkpoints: bool = True, steps: int = 60) -> Stage:
    job = JobShape(ranks=1, steps=steps, saved_after=(10, 20, 30))
    rehearsal = Rehearsal(name="made", rank=0, at_step=23, job=job)
    made = JobFolder(folder / "job").make()
    return Stage(rehearsal, made, checkpoints=made.work / "ckpts" if checkpoints else None)


@contextlib.contextmanager
def started(stage: Stage, program: str) -> Iterator[subprocess.Popen[str]]:
    """Rank 0, which is its own launcher; it has started when it prints a line."""
    process = subprocess.Popen(
        stage.wrap([sys.executable, "-c", program]),
        cwd=stage.folder.work, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        stage.launchers[""] = LauncherProcess("", process, threading.Thread())
        began = {"kind": "began", "t": time.time(), "rank": 0, "world": 1, "attempt": 0,
                 "pid": process.pid, "host": "h"}  # fmt: skip
        records = stage.folder.witness / f"rank-0.attempt-0.{process.pid}.jsonl"
        records.write_text(json.dumps(began) + "\n")
        yield process
    finally:
        process.kill()
        process.wait()
        assert stage.undo() == []
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


def gate_program(then: str) -> str:
    """Waits for the drill as a rank does, then does something."""
    return f"""
import os, sys, time
print("ready", flush=True)
while not os.path.exists("../witness/go-0"):
    time.sleep(0.005)
{then}
"""
