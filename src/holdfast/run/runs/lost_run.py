"""The run before the one that starts: whether its launcher was killed."""

from __future__ import annotations

import os

import msgspec

from holdfast.analysis.job.run_paths import LATEST, RunPaths
from holdfast.run.runs import owner
from holdfast.run.runs.registry import RunState, marker_of, read_run


class UnfinishedRun(msgspec.Struct, frozen=True, kw_only=True):
    folder: str
    host: str
    rebooted: bool
    """the machine was started again since"""


def find(root: str) -> UnfinishedRun | None:
    """Only the newest run of that folder is looked at: so it is said once, at the next start."""
    try:
        paths = RunPaths(root, os.path.basename(os.readlink(os.path.join(root, LATEST))))
    except OSError:
        return None
    who = owner.read(paths.launcher)
    if who is None or marker_of(paths) is None or owner.liveness(who) != "gone":
        return None
    run = read_run(paths)
    if run.state is not RunState.LOST:
        return None
    return UnfinishedRun(
        folder=run.folder,
        host=who.host,
        rebooted=who.boot_id != owner.boot_id(),
    )
