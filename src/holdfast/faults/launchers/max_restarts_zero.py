"""The job is to survive failures, and may not restart once.

What you see   One worker dies, of a preemption or a passing error, and torchrun ends the whole
               job: `RestartsExhausted`, or simply the ChildFailedError of the first failure.
Why            torchrun's --max-restarts is 0 unless you say otherwise. It counts failures of
               workers; a change of membership in an elastic job does not consume it, but the
               failure that comes with a lost peer does. With a fixed --nnodes a lost machine is
               not replaced: the others wait for it, 600 s by default, and then give up.
How to be sure `torchrun --help`; PET_MAX_RESTARTS in the environment has the same effect.
Fix            `torchrun --nnodes=MIN:MAX --max-restarts=N`, N the number of failures the job is
               worth; and load the latest checkpoint at the start, for a restart restores nothing
               by itself. `holdfast run` restarts from the last checkpoint and stops when the same
               failure comes back.
Sources        torch 2.13.0: torch/distributed/run.py (--max-restarts, default 0)
               torch 2.13.0: torch/distributed/elastic/agent/server/api.py (_invoke_run)
               https://docs.pytorch.org/docs/stable/elastic/run.html
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.analysis.machine import MachineFacts
from holdfast.analysis.source.launch import preemptible, questions
from holdfast.analysis.source.source import Launch, Source
from holdfast.fault import Fault
from holdfast.findings import Evidence, Finding

FAULT = Fault(code="HOLD903", slug="max-restarts-zero")

VARIABLE = "PET_MAX_RESTARTS"


@FAULT.check(needs=())
def no_restart_is_allowed(facts: MachineFacts) -> Finding:
    """Only the variable can be seen; a command line goes before it."""
    plan = facts.plan
    if plan.min_nodes == plan.max_nodes:
        return FAULT.does_not_apply("the number of nodes is fixed: nothing says it is elastic")
    value = plan.environment.get(VARIABLE)
    if value is None:
        return FAULT.does_not_apply("how often it may restart stands on the launcher's command")
    if value.strip() != "0":
        return FAULT.ok(f"{VARIABLE}={value} allows restarts")
    return FAULT.note(
        f"an elastic job of {plan.min_nodes} to {plan.max_nodes} nodes, and {VARIABLE}=0",
        reason="the first worker that fails ends the job, unless the command line says otherwise",
        evidence=[Evidence(quote=f"{VARIABLE}={value}", source="environment")],
        fix=f"`export {VARIABLE}=3`, or `torchrun --max-restarts=3 …`",
    )


# --- in what a user wrote ------------------------------------------------------------------------


@FAULT.lint
def it_may_not_restart_once(source: Source) -> Iterator[Finding]:
    for launch in source.launches:
        if launch.kind not in questions.TORCHRUN or questions.hides_flags(launch):
            continue
        flag = launch.flag("max-restarts")
        if flag is None and questions.exported(launch, VARIABLE) is not None:
            continue
        if flag is not None and questions.number(flag) != 0:
            continue
        if why := _meant_to_survive(source, launch):
            said = "--max-restarts=0" if flag else "no --max-restarts, so 0"
            yield FAULT.note(
                f"{why}, and {said}: the first worker that fails ends the job",
                reason="the count is of failed workers; machines that join or leave do not use it "
                f"up{_fixed(launch)}",
                fix="`torchrun --max-restarts=3 …`, and load the latest checkpoint at the start",
                at=(flag or launch).place,
            )


def _meant_to_survive(source: Source, launch: Launch) -> str:
    count = questions.nodes(launch)
    if count and count[0] < count[1]:
        return f"an elastic job (--nnodes={count[0]}:{count[1]})"
    if sign := preemptible.sign(source, launch):
        return f"machines that may be taken away ({sign})"
    return ""


def _fixed(launch: Launch) -> str:
    count = questions.nodes(launch)
    if count is None or count[0] != count[1] or count[1] < 2:
        return ""
    return (
        f"; with a fixed --nnodes={count[1]} a lost machine is not replaced, the others wait for "
        "it up to 600 s and end"
    )
