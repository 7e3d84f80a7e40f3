"""Drills from a script: `drill.plan(…)`, `drill.rehearse(…)`."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast import catalogue
from holdfast.analysis.drill import choose
from holdfast.analysis.drill.outcome import DrillReport, DrillRow
from holdfast.analysis.drill.rehearsal import DrillPlan, JobShape
from holdfast.drill import asked, conduct
from holdfast.errors import ConfigError


def plan(fault: str, *, rank: int | None = None, at_step: int | None = None) -> DrillPlan:
    """One fault to inject, for `rehearse`.

    Args:
        fault: the name of a drill, as `holdfast drill --list` shows it: "rank-killed",
            "rank-stuck/busy". An unknown one raises holdfast.ConfigError.
        rank: that breaks; chosen by what the undisturbed job looked like when None.
        at_step: the fault comes when that rank has taken so many steps. When None: a few steps
            after a checkpoint, near the middle of the job.
    """
    for name, value in (("rank", rank), ("at_step", at_step)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise ConfigError(f"{name} must be a whole number, got {value!r}")
        if value is not None and value < 0:
            raise ConfigError(f"{name} must be >= 0, got {value}")
    drills = {drill.name: drill.quick for one in catalogue.entries() for drill in one.fault.drills}
    found = choose.names(drills, [fault])
    if fault not in found:
        raise ConfigError(
            f"fault must be one drill, got {fault!r}",
            hint=f"make a plan for each: {', '.join(found)}",
        )
    return DrillPlan(fault=fault, rank=rank, at_step=at_step)


def rehearse(
    plans: Sequence[DrillPlan],
    command: Sequence[str],
    *,
    ranks: int | None = None,
    hosts: int = 1,
    runner: str = "holdfast",
    patience: float | None = None,
    reference: str = "",
    drills: str = "drills",
) -> DrillReport:
    """Run a job undisturbed, then once for each plan, and say which promises were kept.

    What `holdfast drill` does, without its screen. Everything that the job writes goes below
    `drills`; whatever happens, no process of it is left.

    Args:
        plans: what to inject, one job for each; from `plan`.
        command: the script and its arguments, as after `holdfast drill`; options of torchrun may
            come before the script, and `--unfenced`.
        ranks: of the job, on each host; torchrun's default of 1 when None.
        hosts: on so many hosts made of network namespaces on this machine (needs root).
        runner: the launcher: "holdfast", "torchrun", "accelerate" or "ft_launcher".
        patience: seconds after which `holdfast run` ends a wait for a rank; 8 when None.
        reference: the folder of an earlier drill of the same job, whose undisturbed run is used.
        drills: where the folder of this drill is made.
    """
    if not plans:
        raise ConfigError("plans is empty: nothing to rehearse", hint="drill.plan('rank-killed')")
    if ranks is not None and ranks < 1:
        raise ConfigError(f"ranks must be >= 1, got {ranks}")
    options = ["--hosts", str(hosts), "--runner", runner, "--drills", drills]
    options += ["--patience", str(asked.PATIENCE if patience is None else patience)]
    options += ["--reference", reference] if reference else []
    options += ["--nproc-per-node", str(ranks)] if ranks is not None else []
    typed = asked.parse([*options, *command])
    return conduct.Conductor(typed, Silence(), plans=plans).hold()


class Silence:
    """No audience: the report says everything."""

    def begin(self, names: Sequence[str], writes: str) -> None: ...

    def reference(self, job: JobShape, took: float) -> None: ...

    def running(self, name: str, what: str) -> None: ...

    def row(self, row: DrillRow) -> None: ...
