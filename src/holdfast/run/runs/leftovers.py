"""What earlier runs left on this machine when their launcher was killed.

The kernel ends the ranks of a launcher that dies; their helpers in sessions of their own live on,
and hold the GPU memory, the ports and the checkpoint folder that the next launch needs. Every
process below a rank has the name of its run's folder in its environment.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from holdfast.analysis.job.run_paths import RunPaths
from holdfast.analysis.machine import Unread
from holdfast.analysis.scene.scene import SurvivingProcess
from holdfast.run.launch import orphans
from holdfast.run.runs import folder, lost_run, owner
from holdfast.run.runs.lost_run import UnfinishedRun
from holdfast.run.runs.registry import RunState, marker_of, read_run
from holdfast.system import deadline, environments, proc
from holdfast.system.proc import CHECKPOINT_WRITER, ProcessRow, process_table, row_of

SECONDS = 2.0
RUN = "HOLDFAST_RUN"
"""set for every rank, and inherited by all that it starts"""
CLOCKS_DIFFER = 1.0
"""seconds between the clock of the journal and that of the process table"""
NOT_WRITTEN = 60.0
"""seconds that a launcher may have lived on after its last line: it notes progress once a minute"""


class Leftover(msgspec.Struct, frozen=True):
    row: ProcessRow
    run: str
    rank: int | None
    spared: str
    """why it is not ours to end, though it carries the name of that run; '' when it is"""


class EndedLeftovers(NamedTuple):
    processes: tuple[SurvivingProcess, ...]
    runs: tuple[str, ...]
    stuck: tuple[int, ...]
    """pids that even SIGKILL did not end"""
    gap: str = ""
    """why it was not possible to look; ''"""
    spared: tuple[str, ...] = ()
    """processes that were left alone, each with the reason"""
    lost: UnfinishedRun | None = None
    """the run before, where its launcher was killed, whether or not it left processes"""


class AbandonedRun(NamedTuple):
    launcher: owner.LauncherIdentity
    ended: float
    """wall seconds; of a launcher that was killed, when its folder was last written to"""


def end(root: str) -> EndedLeftovers:
    """End the leftovers of runs of this folder, and wait until they are gone."""
    # Reading the environment of a process that hangs in the kernel may hang as well.
    # One question: a second child would have the name of a run in its environment, where this
    # process has it, and be found by the first.
    asked = {"leftovers": lambda: msgspec.msgpack.encode((list(find(root)), lost_run.find(root)))}
    answer = deadline.ask(asked, seconds=SECONDS)["leftovers"]
    if isinstance(answer, Unread):
        return EndedLeftovers((), (), (), gap=answer.why)
    found, lost = msgspec.msgpack.decode(answer, type=tuple[list[Leftover], UnfinishedRun | None])
    ours = [one for one in found if not one.spared]
    processes, stuck = orphans.end_all(orphans.Descendant(one.row, one.rank) for one in ours)
    return EndedLeftovers(
        processes=tuple(processes),
        runs=tuple(sorted({one.run for one in ours})),
        stuck=tuple(stuck),
        spared=tuple(
            f"{one.row.name} (pid {one.row.pid}) of {one.run}: {one.spared}"
            for one in found
            if one.spared
        ),
        lost=lost,
    )


def find(root: str) -> Iterator[Leftover]:
    """Processes with the name of a run of ours that no launcher cares for any more."""
    root = os.path.abspath(root)
    abandoned: dict[str, AbandonedRun | None] = {}
    passed_over = set(_ancestors())
    for row in process_table().values():
        # A writer of checkpoints finishes the last save of its rank, and ends by itself.
        is_other = row.is_kernel or row.pid in passed_over or row.name == CHECKPOINT_WRITER
        settings = [] if is_other else _environment(row.pid)
        named = os.fsdecode(environments.value(settings, RUN.encode()) or b"")
        if not named or os.path.dirname(named) != root:
            continue
        run_id = os.path.basename(named)
        if run_id not in abandoned:
            abandoned[run_id] = _abandoned(RunPaths(root, run_id))
        run = abandoned[run_id]
        # Nothing that a launcher started is older than the launcher.
        if run is not None and row.started >= run.launcher.started_ticks:
            slurm_job = environments.value(settings, owner.SLURM_JOB.encode()) or b""
            spared = why_spared(
                run,
                started=_wall(row),
                slurm_job=os.fsdecode(slurm_job),
                cgroup=owner.cgroup_of(row.pid),
            )
            yield Leftover(row, run_id, orphans.rank_in(settings), spared)


def why_spared(run: AbandonedRun, *, started: float, slurm_job: str, cgroup: str) -> str:
    """A run's name is inherited by everything that is started below it, for ever: by a job that a
    rank submitted, a tmux, an agent. '' only for what the run itself left. Pure."""
    launcher = run.launcher
    if launcher.slurm_job is not None and slurm_job != launcher.slurm_job:
        return f"it belongs to Slurm job {slurm_job}" if slurm_job else "it is not in a Slurm job"
    if started > run.ended + CLOCKS_DIFFER:
        return "it was started after that run had ended"
    if launcher.cgroup and cgroup and not _is_within(cgroup, launcher.cgroup):
        return "it is in another cgroup, as another job or service is"
    return ""


def _is_within(cgroup: str, outer: str) -> bool:
    """Line by line the same cgroup, or one below it."""
    inner = cgroup.split("|")
    return all(
        any(one == line or one.startswith(line.rstrip("/") + "/") for one in inner)
        for line in outer.split("|")
    )


def _wall(row: ProcessRow) -> float:
    """When it was started."""
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - row.started / os.sysconf("SC_CLK_TCK")
    return time.time() - age


def _abandoned(paths: RunPaths) -> AbandonedRun | None:
    """None while its launcher lives or may live, and when the run ended well: what it left running
    then was left on purpose."""
    who = owner.read(paths.launcher)
    if who is None or marker_of(paths) is None or who.boot_id != owner.boot_id():
        return None
    run = read_run(paths)
    if run.state is RunState.ENDED and run.exit_code and run.ended:
        return AbandonedRun(who, run.ended)
    if run.state is RunState.LOST:
        return AbandonedRun(who, folder.last_written(paths.folder) + NOT_WRITTEN)
    return None


def _environment(pid: int) -> list[bytes]:
    """Empty when it is not this user's."""
    with contextlib.suppress(OSError):
        if os.stat(proc.folder(pid)).st_uid == os.geteuid():
            return environments.environment(pid)
    return []


def _ancestors() -> Iterator[int]:
    """Ourselves and all above: a user may work in a shell that a rank once started."""
    pid = os.getpid()
    while pid > 0:
        yield pid
        row = row_of(pid)
        pid = row.parent if row else 0
