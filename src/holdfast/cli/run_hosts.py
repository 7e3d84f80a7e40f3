"""`holdfast run --hosts a,b …` and `--hostfile F`: start a job on other machines, over ssh."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.cli import machines, streams

if TYPE_CHECKING:
    from holdfast.run.hosts.driver import JobToStart
    from holdfast.run.hosts.typed import HostsCommand

MEMBER = "--launched"


def serve() -> int:
    """As the process that ssh has started on a host."""
    from holdfast.check.readers.network import own_addresses
    from holdfast.run.hosts import member

    member.serve_over_pipes(own_addresses)
    return 0


def command_in(argv: Sequence[str]) -> HostsCommand | None:
    """None where the job is started on this machine."""
    if not any(word.startswith(("--hosts", "--hostfile")) for word in argv):
        return None  # the common case costs nothing
    from holdfast.run.hosts import typed

    return typed.split(argv)


def start(command: HostsCommand) -> int:
    from holdfast.run.hosts import driver, typed
    from holdfast.run.launch.pump import write_all

    hosts = machines.named(command.hosts, command.hostfile) or []
    typed.refuse_contradictions(command, len(hosts))
    job = driver.JobToStart(
        command,
        hosts,
        os.getcwd(),
        typed.variables(command, os.environ),
        goes_on_alone=signal.getsignal(signal.SIGHUP) is signal.SIG_IGN,
    )
    if command.value("--dry-run") is not None:
        streams.answer(_plan(job))
        return 0
    if left := typed.not_passed_on(command, os.environ):
        streams.narrate(
            f"set here and not passed on: {', '.join(left[:8])}{' …' * (len(left) > 8)}; "
            f"pass one on with `--env {left[0]}`"
        )
    return driver.run(job, say=streams.narrate, write=write_all)


def _plan(job: JobToStart) -> str:
    """For --dry-run; nothing is asked of the hosts, so the place where they meet is left open."""
    import shlex

    from holdfast.redaction import redact
    from holdfast.run.hosts import typed

    lines = [f"would start over ssh in {job.folder}, with a fresh token"]
    for index, host in enumerate(job.hosts):
        arguments = typed.launcher_arguments(
            job.command,
            index=index,
            hosts=len(job.hosts),
            endpoint=f"ADDRESS-OF-{job.hosts[0].name}:PORT",
            slots=host.slots,
        )
        lines.append(f"  {host.name}: {redact(shlex.join(['holdfast', 'run', *arguments]))}")
    if job.environment:
        lines.append(f"variables  {', '.join(sorted(job.environment))}")
    return "\n".join(lines)
