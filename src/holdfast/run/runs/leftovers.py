"""What earlier runs left on this machine when their launcher was killed.

The kernel ends the ranks of a launcher that dies; their helpers in sessions of their own live on,
and hold the GPU memory, the ports and the checkpoint folder that the next launch needs. Every
process below a rank has the name of its run's folder in its environment.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from holdfast.analysis.job.run_paths import RunPaths
from holdfast.analysis.machine import Unread
from holdfast.analysis.scene.scene import SurvivingProcess
from holdfast.run.launch import orphans
from holdfast.run.runs import owner
from holdfast.run.runs.registry import RunState, is_run, read_run
from holdfast.system import deadline
from holdfast.system.proc import ProcessRow, process_table, row_of

SECONDS = 2.0
RUN = "HOLDFAST_RUN"
"""set for every rank, and inherited by all that it starts"""


class EndedLeftovers(NamedTuple):
    processes: tuple[SurvivingProcess, ...]
    runs: tuple[str, ...]
    stuck: tuple[int, ...]
    """pids that even SIGKILL did not end"""
    gap: str = ""
    """why it was not possible to look; ''"""


def end(root: str) -> EndedLeftovers:
    """End the leftovers of runs of this folder, and wait until they are gone."""
    # Reading the environment of a process that hangs in the kernel may hang as well.
    asked = {"leftovers": lambda: msgspec.msgpack.encode(list(find(root)))}
    answer = deadline.ask(asked, seconds=SECONDS)["leftovers"]
    if isinstance(answer, Unread):
        return EndedLeftovers((), (), (), gap=answer.why)
    found = msgspec.msgpack.decode(answer, type=list[tuple[ProcessRow, str]])
    members = [orphans.Descendant(row, orphans.rank_of(row.pid)) for row, _ in found]
    processes, stuck = orphans.end_all(members)
    return EndedLeftovers(tuple(processes), tuple(sorted({run for _, run in found})), tuple(stuck))


def find(root: str) -> Iterator[tuple[ProcessRow, str]]:
    """Processes of ours, with their run's id, that no launcher cares for any more."""
    root = os.path.abspath(root)
    abandoned: dict[str, owner.LauncherIdentity | None] = {}
    spared = set(_ancestors())
    for row in process_table().values():
        folder = "" if row.is_kernel or row.pid in spared else _folder_of(row.pid)
        if not folder or os.path.dirname(folder) != root:
            continue
        run_id = os.path.basename(folder)
        if run_id not in abandoned:
            abandoned[run_id] = _launcher_that_is_gone(RunPaths(root, run_id))
        who = abandoned[run_id]
        # Nothing that a launcher started is older than the launcher.
        if who is not None and row.started >= who.started_ticks:
            yield row, run_id


def _launcher_that_is_gone(paths: RunPaths) -> owner.LauncherIdentity | None:
    """None while it lives or may live, and when the run ended well: what it left running then was
    left on purpose."""
    who = owner.read(paths.launcher)
    if who is None or is_run(paths) is None or who.boot_id != owner.boot_id():
        return None
    run = read_run(paths)
    ended_badly = run.state is RunState.ENDED and run.exit_code != 0
    return who if run.state is RunState.LOST or ended_badly else None


def _folder_of(pid: int) -> str:
    """What its environment says; '' when it is not this user's, or of no run."""
    with contextlib.suppress(OSError):
        if os.stat(f"/proc/{pid}").st_uid != os.geteuid():
            return ""
        for setting in orphans.environment(pid):
            if setting.startswith(RUN.encode() + b"="):
                return os.fsdecode(setting.partition(b"=")[2])
    return ""


def _ancestors() -> Iterator[int]:
    """Ourselves and all above: a user may work in a shell that a rank once started."""
    pid = os.getpid()
    while pid > 0:
        yield pid
        row = row_of(pid)
        pid = row.parent if row else 0
