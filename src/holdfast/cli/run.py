"""`holdfast run …`: a drop-in for torchrun that notices, names, keeps the evidence, restarts."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from holdfast.cli import completion, run_hosts, run_job, streams
from holdfast.errors import ConfigError, EnvironmentFailure

if TYPE_CHECKING:
    from holdfast.run.launch.flags import RunFlags

SUMMARY = "start a training as torchrun does; notice, name, keep the evidence, restart"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("arguments", nargs="*", help="torchrun's flags, the script, its arguments")


def run(arguments: argparse.Namespace) -> int:
    """Only for `holdfast run` without anything behind it; see `launch`."""
    return launch(arguments.arguments)


def launch(argv: Sequence[str]) -> int:
    """Everything after `run` belongs to torchrun's parser and ours, so argparse never sees it."""
    if list(argv) == [run_hosts.MEMBER]:
        return run_hosts.serve()
    if command := run_hosts.command_in(argv):
        return _or_own_failure(lambda: run_hosts.start(command))
    from holdfast.run.launch import flags as job_flags
    from holdfast.run.launch import newer_flags, process_setup

    process_setup.reset_signals()
    try:
        flags = job_flags.parse(argv)
    except newer_flags.CompletionAsked as asked:
        return completion.run(argparse.Namespace(shell=asked.shell))
    return _or_own_failure(lambda: _launch(flags, argv))


def _or_own_failure(work: Callable[[], int]) -> int:
    try:
        return work()
    except EnvironmentFailure as problem:
        streams.remark(f"error: {problem.sentence}")
        if problem.hint:
            streams.remark(f"hint: {problem.hint}")
        run_job.leave_error(problem.sentence, run_job.OWN_FAILURE)
        return run_job.OWN_FAILURE


def _launch(flags: RunFlags, argv: Sequence[str]) -> int:
    from holdfast.cli import run_checks
    from holdfast.cli.run_files import RunFiles
    from holdfast.run.launch import exit_codes
    from holdfast.run.runs import leftovers
    from holdfast.run.watch.watch import Watch
    from holdfast.view.run_screen import Screen

    if flags.dry_run:
        return _describe(flags)
    world = _world(flags)
    run_checks.refuse_missing_script(flags)
    left = leftovers.end(flags.runs)  # first: what they hold would fail the checks
    facts = run_checks.look_first(flags, world) if flags.check else None
    unfit = run_checks.refuses(facts) if facts is not None else ""
    screen = Screen(sys.stderr)
    if flags.meeting:
        from holdfast.cli import run_nodes

        return run_nodes.launch(
            flags, flags.meeting, argv, screen, facts=facts, left=left, unfit=unfit
        )
    if unfit:
        return exit_codes.CHECKS_FAILED
    files = RunFiles(flags, argv, screen, facts=facts)
    files.begin(flags, world, left)
    watch = Watch(
        policy=run_job.policy_of(flags),
        journal=files.journal,
        screen=screen,
        places=files.places,
        memory_kills=run_job.memory_kills,
    )
    return run_job.conduct(flags, watch, files)


def _describe(flags: RunFlags) -> int:
    from holdfast.analysis.job.run_paths import RunPaths
    from holdfast.rank import delivery
    from holdfast.run.launch import launch

    paths = RunPaths(flags.runs, "ID")
    streams.answer(launch.describe(flags, paths=paths, wrap=delivery.command))
    return 0


def _world(flags: RunFlags) -> int:
    from holdfast.run.launch.launch import nproc

    try:
        return nproc(flags)
    except ValueError as problem:  # torchrun's own words: no number, no GPU…
        raise ConfigError(f"--nproc-per-node: {problem}") from problem
