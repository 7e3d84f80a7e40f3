"""A whole drill: the undisturbed job, then one job for each fault, each judged against it."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import secrets
import shutil
import time
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from holdfast import catalogue
from holdfast.analysis.drill import case, checkpoints, choose, damage, judge, saves
from holdfast.analysis.drill.injection import CannotInject, Injection
from holdfast.analysis.drill.outcome import DrillReport, DrillRow, Observed
from holdfast.analysis.drill.reference import reference
from holdfast.analysis.drill.rehearsal import DrillPlan, JobShape, Rehearsal
from holdfast.analysis.drill.timeline import trained_attempt
from holdfast.analysis.drill.trace import Trace
from holdfast.drill import (
    environment,
    guardian,
    leftovers,
    on_hosts,
    undisturbed,
    work_folder,
    write_fence,
)
from holdfast.drill.asked import HOST_NAMES, AskedDrill
from holdfast.drill.job import DrillJob
from holdfast.drill.launching import JobCommand
from holdfast.drill.layout import JobFolder
from holdfast.drill.runners import runner as runners
from holdfast.drill.short_path import short_path
from holdfast.drill.stage import CannotInjectHere, Stage
from holdfast.drill.undisturbed import ReferenceFile, Undisturbed
from holdfast.errors import ConfigError, EnvironmentFailure
from holdfast.fault import Drill, Fault
from holdfast.system import ignored_folder

FIRST_LIMIT = 3600.0
"""seconds for the undisturbed job: nothing is known of it yet"""
AT_LEAST = 90.0
"""seconds for a disturbed one: a busy machine, and a launcher that needs its time to give up"""


class Audience(Protocol):
    """Who is told what happens, while it happens: view/drill_screen.py."""

    def begin(self, names: Sequence[str], writes: str) -> None: ...
    def reference(self, job: JobShape, took: float) -> None: ...
    def running(self, name: str, what: str) -> None: ...
    def row(self, row: DrillRow) -> None: ...


class ToHold(NamedTuple):
    fault: Fault
    drill: Drill
    plan: DrillPlan


class Conductor:
    def __init__(
        self, asked: AskedDrill, audience: Audience, *, plans: Sequence[DrillPlan] = ()
    ) -> None:
        """`plans`: in place of those that were typed."""
        self._asked, self._audience = asked, audience
        self._source = Path.cwd()
        self._runner = runners.by_name(asked.runner)
        self._chosen = chosen(asked, plans)
        if asked.hosts > 1:
            on_hosts.refuse(asked.hosts, asked.options)
        self._command = (*asked.options, *asked.script)
        self._undamaged: list[Trace] = []
        """how the job resumed so far, from whole checkpoints"""
        self._unfenced = write_fence.problem()
        if self._unfenced and not asked.unfenced:
            raise ConfigError(
                "a drill keeps programs and native code that the script starts from writing "
                f"outside of the drill's folder, and cannot do so here: {self._unfenced}",
                hint="where the script starts none, or they may write and remove what they like, "
                "type it: holdfast drill --unfenced …",
            )
        self.folder = self._new_folder()

    def hold(self) -> DrillReport:
        """Raises ConfigError where the undisturbed job cannot be used as a reference."""
        began = time.time()
        self._audience.begin([one.drill.name for one in self._chosen], self._writes())
        with guardian.watching(self.folder):
            usual = self._undisturbed()
            self._audience.reference(usual.job, usual.seconds)
            rows = []
            for number, one in enumerate(self._chosen, 1):
                row = self._row(number, one, usual)
                rows.append(row)
                self._audience.row(row)
        return DrillReport(
            command=self._command,
            runner=self._runner.name,
            ranks=usual.job.ranks,
            hosts=self._asked.hosts,
            steps=usual.job.steps,
            reference_seconds=usual.seconds,
            rows=tuple(rows),
            seconds=time.time() - began,
            started=began,
            reference=trained_attempt(usual.reference.trace, usual.observed.starts[0]),
            patience=usual.job.patience,
            unfenced=self._unfenced,
            folder=str(self.folder),
            versions=versions(),
        )

    def _writes(self) -> str:
        """Where the job may write, and what nothing keeps it from: before anything of it runs."""
        if self._unfenced:
            return (
                f"unfenced, since {self._unfenced}: Python in the ranks writes into the drill's "
                "folder only; programs and native code write and remove anything"
            )
        places = ", ".join(["the drill's folder", *self._asked.writes_to])
        return (
            f"the job can write only to {places} and caches; programs that it starts can still "
            f"{write_fence.not_stopped()} elsewhere"
        )

    # --- the undisturbed job ---------------------------------------------------------------------

    def _undisturbed(self) -> Undisturbed:
        name = "reference"
        self._audience.running(name, "the undisturbed job")
        if self._asked.reference:
            kept = undisturbed.earlier(self._asked.reference, self._command)
            observed = kept.observed
        else:
            unknown = JobShape(ranks=1, steps=0, hosts=self._hosts())
            rehearsal = Rehearsal(name=name, rank=0, at_step=0, job=unknown)
            with self._stage(name, rehearsal, checkpoints=None) as stage:
                observed = self._run(stage, None, longest=FIRST_LIMIT)
            kept = ReferenceFile(runner=self._runner.name, command=self._command, observed=observed)
        undisturbed.keep(kept, self.folder)
        undisturbed.refuse_unusable(observed, work_folder.left_out(self._source))
        found = reference(observed.attempts)
        job = found.shape(
            saved_after=saves.steps_saved(observed, found),
            hosts=self._hosts(),
            patience=self._asked.patience,
            runner=self._runner.name,
        )
        place = checkpoints.folder(observed.listing)
        return Undisturbed(found, job, observed, kept.runner, place)

    # --- one fault -------------------------------------------------------------------------------

    def _row(self, number: int, one: ToHold, usual: Undisturbed) -> DrillRow:
        name = one.drill.name
        if lacking := self._lacks(one.drill, usual.job):
            return DrillRow(drill=name, does="", status="skipped", why=lacking)
        rehearsal = choose.rehearsal(one.plan, one.drill, usual.job)
        injection = one.fault.ask_drill(one.drill, rehearsal)
        if isinstance(injection, CannotInject):
            return DrillRow(drill=name, does="", status="skipped", why=injection.why)
        at_step = 0 if injection.from_start else injection.at_step
        if at_step is not None:
            rehearsal = msgspec.structs.replace(rehearsal, at_step=at_step)
        began = time.time()
        self._audience.running(name, injection.does)
        try:
            with self._stage(f"{number:02}-{name.replace('/', '-')}", rehearsal,
                             checkpoints=usual.checkpoints) as stage:  # fmt: skip
                observed = self._run(
                    stage, injection, longest=longest_allowed(usual.seconds, self._asked.patience)
                )
        except CannotInjectHere as why:
            return DrillRow(drill=name, does=injection.does, status="skipped", why=str(why))
        left = leftovers.more_than(observed.left, usual.observed.left)
        if usual.runner != self._runner.name:  # which need not leave the same temporary files
            left = tuple(one for one in left if not one.startswith("tmp/"))
        observed = msgspec.structs.replace(observed, left=left)
        row = judge.judge(rehearsal, injection, usual.reference, observed, self._undamaged)
        if seen := case.case_of(rehearsal, injection, usual.reference, observed):
            self._undamaged += damage.resumes_without_damage(seen)
        self._tidy(row, Path(observed.folder))
        return msgspec.structs.replace(row, seconds=time.time() - began)

    def _run(self, stage: Stage, injection: Injection | None, *, longest: float) -> Observed:
        name = stage.rehearsal.name
        script = work_folder.script_in(
            self._asked.script, self._asked.options, self._source, stage.folder.work
        )
        command = JobCommand(
            self._runner, self._asked.options, script, self._asked.patience,
            fenced=not self._unfenced,
        )  # fmt: skip
        job = DrillJob(
            stage, command, injection, longest=longest,
            tell=lambda what: self._audience.running(name, what),
        )  # fmt: skip
        return job.run()

    def _lacks(self, drill: Drill, job: JobShape) -> str:
        if "gpu" in drill.needs and not job.on_gpu:
            return "needs a GPU, and no rank of the undisturbed job used one"
        return ""

    # --- folders ---------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _stage(
        self, name: str, rehearsal: Rehearsal, *, checkpoints: str | None
    ) -> Iterator[Stage]:
        folder = JobFolder(self.folder / name).make()
        work_folder.fill(folder.work, self._source, self._asked.links)
        stage = Stage(
            rehearsal,
            folder,
            checkpoints=None if checkpoints is None else folder.work / checkpoints,
        )
        stage.environment = environment.of_job(folder, os.environ, writes_to=self._asked.writes_to)
        if self._asked.hosts == 1:
            with short_path(folder.tmp) as stage.environment["TMPDIR"]:
                yield stage
        else:
            with on_hosts.lab_hosts(self._hosts()) as (stage.lab, stage.hosts):
                yield stage

    def _hosts(self) -> tuple[str, ...]:
        return HOST_NAMES[: self._asked.hosts] if self._asked.hosts > 1 else ("",)

    def _new_folder(self) -> Path:
        stem = Path(self._asked.script[0]).stem if self._asked.script else ""
        script = re.sub(r"[^A-Za-z0-9_.-]+", "-", stem)[:40] or "job"
        name = f"{time.strftime('%y%m%d-%H%M%S')}-{script}-{secrets.token_hex(2)}"
        folder = Path(self._asked.drills, name).absolute()
        try:
            ignored_folder.make(self._asked.drills)
            folder.mkdir(mode=0o700)
        except OSError as problem:
            raise EnvironmentFailure(f"{folder} cannot be made: {problem.strerror}") from problem
        return folder

    def _tidy(self, row: DrillRow, folder: Path) -> None:
        """What is of no use any more; links are removed, never followed."""
        if row.status == "kept" and not self._asked.keep:
            for name in ("work", "tmp"):
                shutil.rmtree(folder / name, ignore_errors=True)


def chosen(asked: AskedDrill, plans: Sequence[DrillPlan] = ()) -> list[ToHold]:
    """Raises ConfigError for a name that no drill has."""
    every = {
        drill.name: (entry.fault, drill)
        for entry in catalogue.entries()
        for drill in entry.fault.drills
    }
    if not plans:
        offered = {name: drill.quick for name, (_, drill) in every.items()}
        names = choose.names(offered, asked.faults, everything=asked.everything)
        plans = [DrillPlan(fault=name) for name in names]
    return [ToHold(*every[plan.fault], plan) for plan in plans]


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("torch", "holdfast"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def longest_allowed(undisturbed: float, patience: float) -> float:
    """Seconds for a disturbed job. It trains at most twice, and is started at most twice as
    often."""
    return max(AT_LEAST, 4 * undisturbed + 4 * patience + 30)
