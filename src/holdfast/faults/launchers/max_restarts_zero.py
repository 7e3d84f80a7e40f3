"""The job should survive failures, but allows no restart.

What you see   One worker fails, through a preemption or a transient error, and torchrun ends the
               whole job: `RestartsExhausted`, or simply the ChildFailedError of the first failure.
Why            torchrun's --max-restarts defaults to 0. It counts failures of workers; a membership
               change in an elastic job does not consume it, but the failure that comes with a lost
               peer does. With a fixed --nnodes a lost machine is not replaced: the others wait for
               it, 600 s by default, and then give up.
How to be sure `torchrun --help`; PET_MAX_RESTARTS in the environment has the same effect.
Fix            `torchrun --nnodes=MIN:MAX --max-restarts=N`, where N is the number of failures you
               accept; and load the latest checkpoint at the start, because a restart restores
               nothing by itself. `holdfast run` restarts from the last checkpoint and stops when
               the same failure recurs.
Known limits   `check` sees only PET_MAX_RESTARTS, not the launcher's command line. Lint judges
               elastic jobs and preemptible machines only.
Sources        torch 2.13.0: torch/distributed/run.py (--max-restarts, default 0)
               torch 2.13.0: torch/distributed/elastic/agent/server/api.py (_invoke_run)
               https://docs.pytorch.org/docs/stable/elastic/run.html
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.analysis.machine import MachineFacts
from holdfast.analysis.source.launch import command_line, preemptible
from holdfast.analysis.source.source import Launch, Source
from holdfast.fault import Fault
from holdfast.findings import Evidence, Finding

FAULT = Fault(
    code="HOLD903",
    slug="max-restarts-zero",
    related=("restart-loop", "endpoint-single-point", "restart-from-zero", "preempted"),
)

VARIABLE = "PET_MAX_RESTARTS"


@FAULT.check(needs=())
def restarts_disabled_by_variable(facts: MachineFacts) -> Finding:
    """Only the variable is visible; the command line overrides it."""
    plan = facts.plan
    if plan.min_nodes == plan.max_nodes:
        return FAULT.does_not_apply("the number of nodes is fixed: the job is not elastic")
    value = plan.environment.get(VARIABLE)
    if value is None:
        return FAULT.does_not_apply("the launcher's command line decides how often it may restart")
    if value.strip() != "0":
        return FAULT.ok(f"{VARIABLE}={value} allows restarts")
    return FAULT.note(
        f"an elastic job of {plan.min_nodes} to {plan.max_nodes} nodes, but {VARIABLE}=0",
        reason="the first worker that fails ends the job, unless the command line says otherwise",
        evidence=[Evidence(quote=f"{VARIABLE}={value}", source="environment")],
        fix=f"`export {VARIABLE}=3`, or `torchrun --max-restarts=3 …`",
    )


# --- lint ----------------------------------------------------------------------------------------


@FAULT.lint
def restarts_disabled(source: Source) -> Iterator[Finding]:
    for launch in source.launches:
        if launch.kind not in command_line.TORCHRUN or command_line.hides_flags(launch):
            continue
        flag = launch.flag("max-restarts")
        if flag is None and command_line.exported(launch, VARIABLE) is not None:
            continue
        if flag is not None and command_line.number(flag) != 0:
            continue
        if why := _should_survive(source, launch):
            said = "--max-restarts=0" if flag else "no --max-restarts, so 0"
            yield FAULT.note(
                f"{why}, but {said}: the first worker that fails ends the job",
                reason="it counts failed workers; machines that join or leave do not consume "
                f"it{_fixed_nodes_note(launch)}",
                fix="`torchrun --max-restarts=3 …`, and load the latest checkpoint at the start",
                at=(flag or launch).place,
            )


def _should_survive(source: Source, launch: Launch) -> str:
    count = command_line.nodes(launch)
    if count and count[0] < count[1]:
        return f"an elastic job (--nnodes={count[0]}:{count[1]})"
    if sign := preemptible.sign(source, launch):
        return f"machines that may be taken away ({sign})"
    return ""


def _fixed_nodes_note(launch: Launch) -> str:
    count = command_line.nodes(launch)
    if count is None or count[0] != count[1] or count[1] < 2:
        return ""
    return (
        f"; with a fixed --nnodes={count[1]} a lost machine is not replaced; the others wait for "
        "it up to 600 s and exit"
    )
