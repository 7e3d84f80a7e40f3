"""The runs of a folder: which live, which ended, which were lost; and ending one."""

from __future__ import annotations

import contextlib
import enum
import os
import select
import signal
from collections.abc import Callable, Sequence

import msgspec

from holdfast.analysis.job import run_marker
from holdfast.analysis.job.journal_records import (
    AttemptRecord,
    EndRecord,
    LaunchRecord,
)
from holdfast.analysis.job.run_marker import RunMarker
from holdfast.analysis.job.run_paths import LATEST, RunPaths
from holdfast.errors import ConfigError, EnvironmentFailure
from holdfast.run.runs import journal, outcome, owner
from holdfast.run.runs.report import restarts_in, steps_in
from holdfast.system import kernel_calls, proc

LONGEST_GRACE = 7 * 86400.0
MARGIN = 30.0
"""seconds for a launcher beyond the time that its ranks may take: SIGKILL, helpers, the report"""
WAIT_IS_LONG = 3.0
"""seconds after which the user is told what is waited for"""
LAST_GRACE = 5.0


class RunState(enum.Enum):
    RUNNING = "running"
    ENDED = "ended"
    LOST = "lost"
    """its launcher is gone and never wrote an end: killed, or the machine went down"""
    UNKNOWN = "unknown"
    """it runs, or ran, where we cannot look: on another machine or in another container"""


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One folder of a run: of the only node, or of one of several."""

    id: str
    """the folder's name"""
    folder: str
    state: RunState
    started: float
    ended: float | None
    world: int
    """0 when it ended before its ranks were started"""
    steps: int
    restarts: int
    exit_code: int | None
    host: str
    pid: int
    command: tuple[str, ...]
    said: str
    """what it came to or is in: the root cause, the signal, the stall; '' when all is well"""
    run: str
    """the same for the folders of all nodes; on one machine `id`"""
    node: str = ""
    """what the nodes of the run call this one; '' on one machine"""
    coordinates: bool = False
    """of the node that decided for all when the run began"""


def list_runs(root: str) -> list[RunSummary]:
    """The newest first."""
    runs = [read_run(RunPaths(root, run_id)) for run_id in run_ids(root)]
    return sorted(runs, key=lambda run: (run.started, run.id), reverse=True)


def run_ids(root: str) -> list[str]:
    """The folders that are ours; none when there is no such root."""
    try:
        names = sorted(os.listdir(root))
    except OSError:
        return []
    return [name for name in names if marker_of(RunPaths(root, name)) is not None]


def marker_of(paths: RunPaths) -> RunMarker | None:
    """None for what is not ours: links, copies, foreign folders."""
    if os.path.islink(paths.folder):
        return None
    try:
        with open(paths.marker, "rb") as file:
            marker = run_marker.decode(file.read())
    except OSError:
        return None
    return marker if marker and marker.run == paths.run_id else None


def read_run(paths: RunPaths) -> RunSummary:
    """What its files say, and whether its launcher lives."""
    who = owner.read(paths.launcher)
    records = journal.read(paths.journal)
    end = next((record for record in reversed(records) if isinstance(record, EndRecord)), None)
    launch = next((record for record in records if isinstance(record, LaunchRecord)), None)
    marker = marker_of(paths) or RunMarker(run=paths.run_id)
    return RunSummary(
        id=paths.run_id,
        folder=paths.folder,
        state=_state(who, end),
        started=marker.started,
        ended=end.t if end else None,
        world=launch.world if launch else 0,
        steps=steps_in(records),
        restarts=restarts_in(records),
        exit_code=end.exit_code if end else None,
        host=who.host if who else "",
        pid=who.pid if who else 0,
        command=who.command if who else (),
        said=outcome.sentence(records),
        run=marker.run_id,
        node=marker.node,
        coordinates=marker.coordinates,
    )


def find(root: str, wanted: str) -> RunSummary:
    """The run of this id, of this beginning, or the `latest`; of several nodes the coordinator's
    folder, where it is here."""
    return parts(list_runs(root), wanted, where=root)[0]


def parts(runs: Sequence[RunSummary], wanted: str, *, where: str) -> list[RunSummary]:
    """All folders of one run, the coordinator's first; a folder's own name means only that one.

    `runs` has the newest first; `where` says where they are.
    """
    if not runs:
        raise ConfigError(f"no runs in {where}", hint="give their folder: `--runs DIR`")
    if wanted == LATEST:
        wanted = runs[0].run
    found = [run for run in runs if wanted == run.run] or [run for run in runs if wanted == run.id]
    found = found or [run for run in runs if wanted and run.id.startswith(wanted)]
    names = list(dict.fromkeys(run.run for run in found))
    if len(names) > 1:
        shown = ", ".join(names[:5])
        raise ConfigError(f"{wanted!r} matches several runs: {shown}", hint="give more of its id")
    if not names:
        raise ConfigError(f"no run {wanted!r} in {where}", hint="list them: `holdfast runs`")
    return sorted(found, key=lambda run: (not run.coordinates, run.node, run.id))


def stop(
    run: RunSummary,
    *,
    seconds: float | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> str:
    """End a run: what was done, as one sentence. Only its own launcher is ever signalled.

    It is killed when it does not exit within `seconds`: by default as long as its ranks may take
    to save and exit, and those that raised to finish their exit handlers before that.
    """
    if run.state is RunState.UNKNOWN:
        raise EnvironmentFailure(
            f"{run.id} runs on {run.host or 'another machine'} and cannot be stopped from here",
            hint=f"run `holdfast stop {run.id}` there",
        )
    paths = RunPaths(os.path.dirname(run.folder), run.id)
    who = owner.read(paths.launcher)
    if run.state is RunState.LOST:
        return (
            f"nothing was stopped: {run.id} is lost, its launcher (pid {run.pid}) is gone "
            "and wrote no end"
        )
    if run.state is not RunState.RUNNING or who is None:
        return f"{run.id} is not running ({run.state.value})"
    try:
        handle = kernel_calls.pidfd_open(who.pid)
    except ProcessLookupError:
        return f"{run.id} had already ended"
    except OSError as problem:
        raise EnvironmentFailure(
            f"pidfd_open failed ({problem.strerror}): pid {who.pid} may be another process by "
            "the time it is signalled",
            hint=f"`kill -TERM {who.pid}` if `ps -p {who.pid}` shows your run",
        ) from problem
    try:
        # The handle stays with the process it was opened for; only now is it sure which.
        if not owner.is_process(who):
            return f"{run.id} had already ended"
        _refuse_a_stranger(who, paths)
        wait = 2 * _believable(who.grace) + MARGIN if seconds is None else seconds
        first = _stop_signal(who.pid) if run.node else signal.SIGTERM
        return _end(handle, who, paths, wait, tell, first)
    finally:
        os.close(handle)


def _refuse_a_stranger(who: owner.LauncherIdentity, paths: RunPaths) -> None:
    """What a file says of a process, that process must show itself."""
    with contextlib.suppress(PermissionError):  # another user's: the kernel refuses the signal
        if not owner.holds_mark(who.pid, paths.folder):
            raise EnvironmentFailure(
                f"pid {who.pid} in {paths.launcher} is not the launcher of {paths.run_id}: nothing "
                "was signalled (the file was copied or forged, or an older holdfast started it)",
                hint=f"see what it is: `ps -fp {who.pid}`",
            )


def _believable(grace: float) -> float:
    return grace if 0 <= grace <= LONGEST_GRACE else owner.DEFAULT_GRACE


def _stop_signal(pid: int) -> signal.Signals:
    """On several nodes SIGTERM means that this node is taken away, and the others may continue;
    SIGINT ends the job. Where a script started it in the background, it ignores that one."""
    return signal.SIGINT if proc.handles(pid, signal.SIGINT) else signal.SIGTERM


def _end(
    handle: int,
    who: owner.LauncherIdentity,
    paths: RunPaths,
    wait: float,
    tell: Callable[[str], None],
    first: signal.Signals,
) -> str:
    for order, seconds in ((first, wait), (signal.SIGKILL, LAST_GRACE)):
        try:
            kernel_calls.pidfd_send_signal(handle, order)
        except ProcessLookupError:
            break
        except PermissionError as problem:
            raise EnvironmentFailure(
                f"{paths.run_id} belongs to user id {who.user}: not permitted to stop it"
            ) from problem
        if _is_over(handle, min(seconds, WAIT_IS_LONG)):
            break
        if order is first and seconds > WAIT_IS_LONG:
            tell(f"waiting up to {wait:.0f} s: its ranks have {who.grace:g} s to save and exit")
        if _is_over(handle, seconds - min(seconds, WAIT_IS_LONG)):
            break
    else:
        raise EnvironmentFailure(
            f"pid {who.pid} did not exit within {LAST_GRACE:g} s after SIGKILL (uninterruptible in "
            "the kernel?)",
            hint=f"see where it hangs: `cat /proc/{who.pid}/wchan`",
        )
    if order is first:
        return f"{paths.run_id} stopped"
    sentence = f"killed by SIGKILL: it did not exit within {wait:g} s after {first.name}"
    book = journal.Journal(paths.journal)
    attempts = [r.attempt for r in book.records() if isinstance(r, AttemptRecord)]
    book.write(
        EndRecord(
            exit_code=128 + signal.SIGKILL,
            attempt=max(attempts, default=0),
            reason=f"holdfast stop: {sentence}",
        )
    )
    book.close()
    return f"{paths.run_id} {sentence}; its ranks end with it"


def _is_over(handle: int, seconds: float) -> bool:
    """A pidfd becomes readable when its process ends."""
    waiting = select.poll()
    waiting.register(handle, select.POLLIN)
    return bool(waiting.poll(seconds * 1000))


def _state(who: owner.LauncherIdentity | None, end: EndRecord | None) -> RunState:
    where = owner.liveness(who) if who else "unknown"
    if where == "alive":
        return RunState.RUNNING  # also while it still cleans up after its last line
    if end:
        return RunState.ENDED
    return RunState.LOST if where == "gone" else RunState.UNKNOWN
