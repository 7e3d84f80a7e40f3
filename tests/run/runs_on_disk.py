"""Runs as they lie on a disk: of living, dead and recycled launchers."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from holdfast.analysis.job.run_paths import RunPaths
from holdfast.run.runs import folder, owner
from holdfast.run.runs.journal import Journal
from tests.run.journals import record

LAUNCHER = """
import os, signal, sys
from holdfast.analysis.job.journal_records import LaunchRecord
from holdfast.run.runs import folder, journal
if sys.argv[2] == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
node, run = [*sys.argv[3:], ""][:2]
part = folder.RunPart(node, run, coordinates=not run) if node else None
made = folder.make(sys.argv[1], "train.py", sys.argv, os.environ, part=part)
journal.Journal(made.paths.journal).write(LaunchRecord(world=4))
print(made.paths.run_id, flush=True)
signal.pause()
"""


@contextlib.contextmanager
def living_run(
    root: Path, manner: str = "polite", node: str = ""
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The id of a run whose launcher lives, and that process; `deaf` ignores SIGTERM."""
    process = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, str(root), manner, node], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout
        yield process.stdout.readline().strip(), process
    finally:
        process.kill()
        process.communicate()


def a_run(
    root: Path,
    *records: dict[str, Any],
    part: folder.RunPart | None = None,
    **of_launcher: Any,
) -> RunPaths:
    """The folder of a run started by a process that is gone, unless told otherwise."""
    command = ["holdfast", "run", "train.py"]
    paths = folder.make(str(root), "train.py", command, {}, part=part).paths
    assert paths
    who = owner.read(paths.launcher)
    assert who
    gone = {"started_ticks": who.started_ticks - 1, **of_launcher}
    Path(paths.launcher).write_bytes(msgspec.json.encode(msgspec.structs.replace(who, **gone)))
    add_records(paths, *records)
    return paths


def add_records(paths: RunPaths, *records: dict[str, Any]) -> None:
    book = Journal(paths.journal)
    for fields in records:
        book.write(record(**fields))
    book.close()


def make_older(paths: RunPaths, *, days: float, now: float) -> None:
    """As if everything had been written `days` ago."""
    then = now - days * 86400
    marker = json.loads(Path(paths.marker).read_bytes())
    Path(paths.marker).write_text(json.dumps({**marker, "started": then}))
    for where, _, names in os.walk(paths.folder, topdown=False):
        for name in [*names, "."]:
            os.utime(os.path.join(where, name), (then, then), follow_symlinks=False)
