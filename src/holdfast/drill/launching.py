"""Starting and ending the launchers of one job."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.drill import marked_processes, on_hosts, write_fence
from holdfast.drill.runners import screens
from holdfast.drill.runners.runner import Runner, ToStart
from holdfast.drill.stage import LauncherProcess, Stage
from holdfast.rank.witness import write_guard


class JobCommand(NamedTuple):
    """The user's job, as it is to be started."""

    runner: Runner
    options: Sequence[str]
    script: Sequence[str]
    patience: float
    fenced: bool = True


def start(stage: Stage, job: JobCommand) -> None:
    """A launcher on every host, or one on this machine."""
    for host in stage.rehearsal.job.hosts:
        if host not in stage.absent:
            start_one(stage, job, host)


def start_one(stage: Stage, job: JobCommand, host: str) -> None:
    command = job.runner.command(to_start(stage, job, host))
    environment = on_hosts.environment_on(stage, host)
    if job.fenced:
        folders = write_guard.allowed_folders(environment, os.path.expanduser("~"))
        command = write_fence.around(command, folders)
    stage.launchers[host] = _start(stage, host, stage.wrap(command))


def to_start(stage: Stage, job: JobCommand, host: str) -> ToStart:
    meeting = on_hosts.meeting_options(stage, host, job.runner.name)
    options = [*meeting, *stage.flags, *job.options, *stage.flags_on.get(host, [])]
    runs = stage.folder.runs / host
    return ToStart(options, job.script, runs, job.patience, checks_first=stage.checks_first)


def _start(stage: Stage, host: str, command: list[str]) -> LauncherProcess:
    if stage.hosts:
        process = on_hosts.start_on_host(stage, host, command)
    else:
        process = subprocess.Popen(
            command, cwd=stage.folder.work, env=on_hosts.environment_on(stage, host),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace",
            start_new_session=True,  # Ctrl-C is for the drill, which then ends the job
        )  # fmt: skip
    assert process.stdout is not None
    return LauncherProcess(host, process, screens.keep(process.stdout, stage.folder.screen(host)))


def exit_codes(stage: Stage) -> dict[str, int | None]:
    return {host: one.process.poll() for host, one in stage.launchers.items()}


def all_ended(stage: Stage) -> bool:
    return all(code is not None for code in exit_codes(stage).values())


def kill(stage: Stage) -> None:
    for one in stage.launchers.values():
        with contextlib.suppress(ProcessLookupError):
            one.process.kill()
    marked_processes.end(stage.folder.witness)
    reap(stage)


def reap(stage: Stage) -> None:
    """Launchers that have ended, and what they still had to say."""
    for one in stage.launchers.values():
        one.process.wait()
        one.reader.join(5)
        if one.process.stdout and not one.reader.is_alive():
            one.process.stdout.close()


def combined(codes: dict[str, int | None]) -> int | None:
    """Of several launchers that count: the first that is not 0; None where one did not end by
    itself."""
    if not codes or None in codes.values():
        return None
    return next((code for code in codes.values() if code), 0)
