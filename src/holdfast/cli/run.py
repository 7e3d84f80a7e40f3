"""`holdfast run …`: a drop-in for torchrun that notices, names, keeps the evidence, restarts."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from holdfast.cli import run_hosts, streams
from holdfast.errors import ConfigError, EnvironmentFailure

if TYPE_CHECKING:
    from holdfast.analysis.machine import MachineFacts
    from holdfast.run.launch.flags import RunFlags
    from holdfast.run.launch.places import RunPlaces
    from holdfast.run.runs.folder import CreatedRun
    from holdfast.run.runs.folder_writer import FolderNews
    from holdfast.run.runs.journal import Journal
    from holdfast.run.runs.leftovers import EndedLeftovers
    from holdfast.run.runs.report import RunReport
    from holdfast.run.watch.watch import Watch
    from holdfast.view.run_screen import Screen

SUMMARY = "start a training as torchrun does; notice, name, keep the evidence, restart"
FOUND = 1
OWN_FAILURE = 125
MOST_SPARED = 3
"""processes of earlier runs that are named, each with the reason why it was left alone"""


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
    from holdfast.run.launch import process_setup

    process_setup.reset_signals()
    flags = job_flags.parse(argv)
    return _or_own_failure(lambda: _launch(flags, argv))


def _or_own_failure(work: Callable[[], int]) -> int:
    try:
        return work()
    except EnvironmentFailure as problem:
        streams.remark(f"error: {problem.sentence}")
        if problem.hint:
            streams.remark(f"hint: {problem.hint}")
        _leave_error(problem.sentence, OWN_FAILURE)
        return OWN_FAILURE


def _launch(flags: RunFlags, argv: Sequence[str]) -> int:
    from holdfast.analysis.job.journal_records import FolderRecord
    from holdfast.analysis.job.run_paths import RunPaths
    from holdfast.rank import delivery
    from holdfast.run.launch import launch
    from holdfast.run.launch.places import RunPlaces
    from holdfast.run.runs import folder, leftovers
    from holdfast.run.runs.journal import Journal
    from holdfast.view.run_screen import Screen

    screen = Screen(sys.stderr)
    name = os.path.splitext(os.path.basename(flags.torchrun.training_script))[0] or "run"
    if flags.dry_run:
        paths = RunPaths(flags.runs, "ID")
        streams.answer(launch.describe(flags, paths=paths, wrap=delivery.command))
        return 0
    if flags.meeting:
        raise EnvironmentFailure(
            "holdfast run supports one node only",
            hint=f"use `torchrun --nnodes {flags.torchrun.nnodes} …`",
        )
    world = _world(flags)
    _refuse_missing_script(flags)
    left = leftovers.end(flags.runs)  # first: what they hold would fail the checks
    facts = _look_first(flags, world) if flags.check else None
    if facts is not None and _refuses(facts):
        return FOUND
    command = ["holdfast", "run", *argv]
    made = folder.make(flags.runs, name, command, os.environ, grace=flags.grace)
    if made.paths:
        folder.prune(made.paths.root, now=time.time())
    if made.paths and facts is not None:
        folder.save(made.paths.facts, _without_environment(facts))

    def tell(news: FolderNews) -> None:  # from the writer's thread, seconds from now at least
        screen.say(news.sentence)
        journal.write(FolderRecord(hangs=news.hangs, reason=news.sentence))

    places = RunPlaces(made.paths, tell)
    journal = Journal(made.paths.journal if made.paths else None, writer=places.writer)
    _raise_open_files(journal)
    _begin(flags, journal, screen, made, world)
    _tell_of_leftovers(left, journal, screen)
    return _watched(flags, journal, screen, places)


def _refuse_missing_script(flags: RunFlags) -> None:
    """One sentence instead of every rank's own. A module, a program or another interpreter finds
    its file by its own rules."""
    typed = flags.torchrun
    script = typed.training_script
    if typed.module or typed.no_python or "PYTHON_EXEC" in os.environ or script == "-":
        return
    if not os.path.exists(script):
        raise ConfigError(
            f"no script at {script}", hint=f"check the path; the current folder is {os.getcwd()}"
        )


def _watched(flags: RunFlags, journal: Journal, screen: Screen, places: RunPlaces) -> int:
    """The job, from its first rank to the report."""
    from holdfast.analysis.scene.scene import Policy
    from holdfast.rank import delivery, nccl_settings
    from holdfast.run.launch import launch
    from holdfast.run.launch.pump import write_all
    from holdfast.run.watch.watch import Watch

    watch = Watch(
        policy=Policy(
            patience=flags.patience,
            max_restarts=flags.max_restarts,
            restarts_typed=flags.restarts_typed,
            nccl_aborts=nccl_settings.aborts(os.environ),
        ),
        journal=journal,
        screen=screen,
        places=places,
        memory_kills=_memory_kills,
    )
    code = OWN_FAILURE
    try:
        code = launch.start(
            flags,
            watcher=watch,
            paths=places.paths,
            places=places,
            rank_environment=watch.rank_environment,
            wrap=delivery.command,
            write=screen.beside(write_all),
        )
    finally:
        watch.close()
        places.copy()
        _end(code, watch, journal, screen, places)
    _leave_root_cause(code, watch, places)
    return code


def _leave_root_cause(code: int, watch: Watch, places: RunPlaces) -> None:
    """For the program that started us, where it asks for it."""
    from holdfast.run.launch import error_file

    if watch.stop_signal:
        _leave_error(f"stopped by {watch.stop_signal}", code)
    elif code and watch.acted_on:
        found, scene = watch.acted_on
        where = places.readable.error if places.readable else None
        failure = error_file.of_failure(found, scene, code=code, wall=time.time(), file_of=where)
        error_file.write(os.environ, failure)
    elif code:
        _leave_error(f"the job failed with exit code {code}", code)


def _leave_error(sentence: str, code: int) -> None:
    from holdfast.run.launch import error_file

    error_file.write(os.environ, error_file.document(sentence, code=code, wall=time.time()))


def _memory_kills() -> int | None:
    from holdfast.check.readers.cgroup import out_of_memory_kills

    return out_of_memory_kills()


def _world(flags: RunFlags) -> int:
    from holdfast.run.launch.launch import nproc

    try:
        return nproc(flags)
    except ValueError as problem:  # torchrun's own words: no number, no GPU…
        raise ConfigError(f"--nproc-per-node: {problem}") from problem


def _look_first(flags: RunFlags, world: int) -> MachineFacts:
    from holdfast.check.collect import collect
    from holdfast.check.plan import Flags, make_plan
    from holdfast.check.reader_list import readers
    from holdfast.cli.choices import DEADLINE

    meant = Flags(
        port=flags.port,
        port_flag="--master-port",
        nproc_per_node=world,
        log_folder=flags.runs,
    )
    plan = make_plan(meant, os.environ, accelerators=0)
    return collect(plan, readers(), seconds=DEADLINE)


def _without_environment(facts: MachineFacts) -> MachineFacts:
    """The environment holds secrets; settings.json has it redacted."""
    import msgspec

    plan = msgspec.structs.replace(facts.plan, environment={})
    return msgspec.structs.replace(facts, plan=plan)


def _refuses(facts: MachineFacts) -> bool:
    """The quick checks of this machine; an error stops the start, with the finding."""
    from holdfast import catalogue
    from holdfast.findings import Status
    from holdfast.view import text

    findings = catalogue.check(facts, catalogue.choose([], []))
    errors = [f for f in findings if f.status is Status.ERROR]
    if not errors:
        return False
    colour = text.wants_colour(sys.stderr)
    streams.remark("\n\n".join(text.finding(item, colour=colour) for item in errors))
    streams.remark("hint: fix it, or skip the checks with `holdfast run --no-check …`")
    return True


def _raise_open_files(journal: Journal) -> None:
    from holdfast.analysis.job.journal_records import LimitRecord
    from holdfast.run.launch import process_setup

    if raised := process_setup.raise_open_files():
        journal.write(LimitRecord(name="nofile", soft=raised[0], raised_to=raised[1]))


def _begin(flags: RunFlags, journal: Journal, screen: Screen, made: CreatedRun, world: int) -> None:
    from holdfast.analysis.job.journal_records import LaunchRecord

    journal.write(
        LaunchRecord(world=world, max_restarts=flags.max_restarts, patience=flags.patience or 0.0)
    )
    where = f", run folder {made.paths.folder}" if made.paths else ""
    screen.say(f"{world} rank{'s' if world > 1 else ''}{where}")
    for remark in (made.remark, *flags.remarks):
        if remark:
            screen.say(remark)


def _tell_of_leftovers(left: EndedLeftovers, journal: Journal, screen: Screen) -> None:
    from holdfast import text
    from holdfast.analysis.job.journal_records import LeftoversRecord
    from holdfast.analysis.job.phrases import children

    if left.gap:
        screen.say(f"could not look for processes of earlier runs: {left.gap}")
    if left.spared:
        more = f" and {len(left.spared) - MOST_SPARED} more" * (len(left.spared) > MOST_SPARED)
        screen.say(f"still running, left alone: {'; '.join(left.spared[:MOST_SPARED])}{more}")
    if not left.processes:
        return
    runs = " and ".join(left.runs)
    told = f"ended {children(left.processes)}, left by {runs}, whose launcher is gone"
    if left.stuck:
        told += (
            f"; pid {text.numbers(left.stuck)} did not exit after SIGKILL (uninterruptible in the "
            "kernel?)"
        )
    pids = tuple(process.pid for process in left.processes)
    journal.write(LeftoversRecord(runs=left.runs, pids=pids, stuck=left.stuck, reason=told))
    screen.say(told)


def _end(code: int, watch: Watch, journal: Journal, screen: Screen, places: RunPlaces) -> None:
    from holdfast.run.runs import report

    journal.write(watch.end_record(code))
    summary = report.summarise(journal.records())
    screen.say(_explained(summary, journal, places.readable.folder) if code and places.readable
               else report.lines(summary))  # fmt: skip
    if missing := places.close():
        screen.say(missing)
    screen.close()
    journal.close()


def _explained(summary: RunReport, journal: Journal, folder: str) -> list[str]:
    """The end of a run that failed: what its folder shows now that everything is in it."""
    from holdfast.cli import run_ending
    from holdfast.run.runs import report

    if summary.failures.stop:
        return report.lines(summary)
    found, remark = run_ending.explain(folder)
    if found is not None:
        journal.write(run_ending.record(found))
    told = report.lines(summary, diagnosis=found, folder=folder)
    return [remark, *told] if remark else told
