"""Failed collectives are not handled, so a dead peer hangs the job.

What you see   One rank dies or loses its link; the others stay in their collective long after its
               timeout, at worst until the scheduler ends the job. The log may report the timeout,
               but nothing happens after it.
Why            TORCH_NCCL_ASYNC_ERROR_HANDLING=0 tells torch not to act when NCCL reports an error
               or a collective exceeds its timeout; only the heartbeat monitor of torch 2.2 to 2.14
               is left, which ends the process minutes later (TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC), if
               it is on. The default (3) ends the process at once. TORCH_NCCL_BLOCKING_WAIT=1, which
               guides call 'required', switches the watchdog off as well: a work.wait() then blocks
               the CPU and raises on a timeout. But since torch 2.8 a synchronous call (all_reduce
               or barrier without async_op) contains no wait(): with blocking wait it has no timeout
               at all. Measured with torch 2.11 and NCCL 2.28.9, a group timeout of 6 s and a peer
               that never joined: barrier() and all_reduce() hung silently until they were killed;
               async_op=True and wait() raised after 6 s.
How to be sure `env | grep -E 'ASYNC_ERROR_HANDLING|BLOCKING_WAIT'` in a rank. torchrun passes your
               values on.
Fix            `unset TORCH_NCCL_ASYNC_ERROR_HANDLING TORCH_NCCL_BLOCKING_WAIT`. If you switched
               handling off because ranks were ended during long saves or first steps, give
               init_process_group a longer timeout. A value that torch cannot read (`on`, `true` for
               a number) is rejected with `Invalid value for environment variable`.
Known limits   A log shows it only when torch printed its environment, and never which rank was
               late. Values that a script computes at run time are not known to `lint`.
Sources        torch 2.13.0: torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp (ErrorHandlingMode)
               pytorch/pytorch torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp (Watchdog)
               torch 2.13.0: torch/csrc/distributed/c10d/Utils.hpp (getCvarBool, getCvarInt)
               https://docs.pytorch.org/docs/stable/torch_nccl_environment_variables.html
               https://github.com/pytorch/pytorch/pull/110723
               https://github.com/pytorch/pytorch/pull/150398 (synchronous calls without a wait)
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.patterns import watchdog
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.machine import MachineFacts, Setting, Unread
from holdfast.analysis.source.source import Source, SourceKind
from holdfast.analysis.variables.in_source import (
    InForce,
    as_fact,
    at,
    environments,
    in_force,
    readable,
    without,
)
from holdfast.analysis.variables.parsing import torch_bool, torch_int
from holdfast.analysis.versions import release
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis, Finding

FAULT = Fault(
    code="HOLD505",
    slug="async-handling-off",
    related=("variable-conflict", "variable-redundant", "clocks-inconsistent", "slow-rank-timeout"),
)

NEW, OLD = "TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING"
BLOCKING_WAIT = ("TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT")
NO_IMPLICIT_WAIT = (2, 8)
"""the torch whose synchronous calls on NCCL return without a wait()"""


@FAULT.check(needs=("settings", "software"))
def failed_collectives_are_not_handled(facts: MachineFacts) -> Finding:
    settings = in_force(facts)
    handling, blocking = settings.torch(NEW, OLD), settings.torch(*BLOCKING_WAIT)
    if blocking and torch_bool(blocking.value):
        return _blocking(blocking, _torch(facts))
    if handling is None:
        return FAULT.ok("async error handling is on (the default)")
    return _switched_off(settings) or FAULT.ok(
        f"{handling.name}={handling.value} keeps error handling on"
    )


def _torch(facts: MachineFacts) -> str:
    return "" if isinstance(facts.software, Unread) else facts.software.torch


def _switched_off(settings: InForce) -> Finding | None:
    handling, blocking = settings.torch(NEW, OLD), settings.torch(*BLOCKING_WAIT)
    if handling is None or torch_int(handling.value) != 0:
        return None
    if blocking and torch_bool(blocking.value):
        return None  # _blocking reports that one
    evidence = [handling.evidence]
    if handling.name == OLD:
        return FAULT.note(
            f"{OLD}=0 switches error handling off, except under torchrun",
            reason=f"torchrun exports {NEW}=1 unless you set it; with other launchers a failed "
            "NCCL collective hangs",
            evidence=evidence,
            fix=without(handling),
        )
    return FAULT.warning(
        f"{NEW}=0: a failed NCCL collective hangs past its timeout",
        reason="torch acts neither on NCCL's errors nor when a collective exceeds its timeout; at "
        "best its heartbeat monitor ends the process minutes later",
        evidence=evidence,
        fix=f"{without(handling)} (the default, 3, ends the process); for long pauses use "
        "init_process_group(timeout=…) instead",
    )


# --- in what a user wrote -----------------------------------------------------------------------


@FAULT.lint
def script_switches_error_handling_off(source: Source) -> Iterator[Finding]:
    for environment in environments(source):
        finding = _switched_off(environment.in_force)
        # The other variable has a value that is not known here: it may be on.
        if finding and not environment.has_unknown(*BLOCKING_WAIT):
            yield environment.placed(finding)
    for setting in readable(source, NEW, OLD, *BLOCKING_WAIT):
        if source.kind is SourceKind.NCCL_CONF or not setting.value:
            continue
        switch = setting.name in BLOCKING_WAIT
        meant = torch_bool(setting.value) if switch else torch_int(setting.value)
        if meant is None:
            yield at(_rejected(as_fact(setting), switch=switch), setting)
        elif switch and meant:
            yield at(_blocking(as_fact(setting), source.here.torch), setting)


def _rejected(setting: Setting, *, switch: bool) -> Finding:
    values = "1 or 0 (or true, false, yes, no)" if switch else "a number, 0 to 3"
    return FAULT.error(
        f"{setting.name}={setting.value} is rejected: torch accepts {values}",
        reason=f"the first NCCL group will raise `Invalid value for environment variable: "
        f"{setting.name}`",
        fix=f"{without(setting)}: failures are handled by default",
    )


def _blocking(setting: Setting, torch: str) -> Finding:
    seen = [setting.evidence]
    fix = f"{without(setting)}: by default a watchdog ends the process after a timeout"
    if torch and release(torch) < NO_IMPLICIT_WAIT:
        return FAULT.note(
            f"{setting.name}={setting.value} makes every wait() block the CPU, and switches async "
            "error handling off",
            reason="no watchdog acts then: a timeout raises only in the rank that waits. It is "
            "meant for debugging, or for a script that catches that error",
            evidence=seen,
            fix=fix,
        )
    return FAULT.warning(
        f"{setting.name}={setting.value} leaves synchronous NCCL collectives without a timeout",
        reason="it switches the watchdog off, and only an explicit work.wait() raises instead: "
        "since torch 2.8 a call without async_op contains none. barrier() and all_reduce() hung "
        "past their timeout (measured with torch 2.11)",
        evidence=seen,
        fix=f"{fix}; to catch a timeout, use `work = dist.all_reduce(x, async_op=True)` and "
        "`work.wait(timedelta(seconds=…))`, which raises without this variable",
    )


# --- in what is left of a job -------------------------------------------------------------------

TURNED_OFF = FAULT.log_pattern(
    "turned-off",
    r"\b(?P<name>(?:TORCH_)?NCCL_ASYNC_ERROR_HANDLING)(?:: |=)'?0\b",
    anchors="NCCL_ASYNC_ERROR_HANDLING",
    example="[PG 0 Rank 1] ProcessGroupNCCL environments: NCCL version: 2.20.5, "
    "TORCH_NCCL_ASYNC_ERROR_HANDLING: 0, TORCH_NCCL_BLOCKING_WAIT: 0",
    role=Role.CONTEXT,
)
BLOCKING = FAULT.log_pattern(
    "blocking-wait",
    r"\b(?:TORCH_)?NCCL_BLOCKING_WAIT(?:: |=)'?1\b",
    anchors="NCCL_BLOCKING_WAIT",
    example="NCCL_BLOCKING_WAIT: 1",
    role=Role.CONTEXT,
)


@FAULT.explain
def timeout_was_not_acted_on(wreckage: Wreckage) -> Diagnosis | None:
    """It prolongs a failure and is never its cause, so any other diagnosis ranks above it."""
    off = wreckage.seen(TURNED_OFF)
    timeouts = wreckage.seen(watchdog.WATCHDOG, watchdog.STATUS, watchdog.HEARTBEAT_STUCK)
    if not off or not timeouts or wreckage.seen(BLOCKING, watchdog.TAKING_DOWN):
        return None
    name = off[0].fields["name"]
    return FAULT.diagnosis(
        f"{name}=0 made torch ignore the timeout of a collective, which kept hanging; why a rank "
        "was late is a separate question",
        confidence=0.45,
        seen=(*off[:1], *timeouts[:2]),
        culprit=Culprit(what=f"{name}=0"),
        fix=f"`unset {name}`: by default torch ends the process, and the launcher ends the job",
        next=f"env | grep {OLD}",
        unknown=("which rank was late, and why",),
    )
