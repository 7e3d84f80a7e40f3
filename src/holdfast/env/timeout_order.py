"""Whether the order of the timeouts is sound: each must outlast what it guards. Pure.

connections < groups < watchers < scheduler. What the environment alone shows, the check face of
clocks-inconsistent says; here is what needs the command line, the script, or all timeouts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from holdfast.analysis.job import wait_limit
from holdfast.analysis.variables.status import Timeout
from holdfast.env.job import Job
from holdfast.env.timeouts import launchers
from holdfast.faults.settings import clocks_inconsistent
from holdfast.findings import Evidence, Finding
from holdfast.text import exact_duration

FAULT = clocks_inconsistent.FAULT
SLURM_END = "SLURM_JOB_END_TIME"
OUTER = ("scheduler", "scheduler-asked", "timeout-command")
HIDES = ("new_group", "new_subgroups", "new_subgroups_by_enumeration")


def findings(job: Job, timeouts: Sequence[Timeout]) -> tuple[Finding, ...]:
    said = [one for one in FAULT.ask_check(job.facts) if one.status.concern]
    by_key = {timeout.key: timeout for timeout in timeouts}
    slurm_said = any(SLURM_END in one.about for one in said)
    checks = (
        _outer_ends_first(by_key, timeouts, slurm_said=slurm_said),
        _connections(by_key),
        _not_inherited(job),
        _rendezvous_keys(job),
        _patience(by_key, timeouts),
        _stall(by_key),
    )
    own = (one for check in checks for one in check)
    return (*said, *(msgspec.structs.replace(one, host=job.facts.host) for one in own))


def _seen(*timeouts: Timeout) -> list[Evidence]:
    return [
        Evidence(quote=f"{one.name}: {exact_duration(one.seconds)}", source=one.origin)
        for one in timeouts
    ]


def _groups(timeouts: Sequence[Timeout]) -> list[Timeout]:
    """What decides how long a hang lasts; of what the script certainly uses, if we know."""
    groups = [c for c in timeouts if c.key.startswith("group-") and c.seconds is not None]
    return [c for c in groups if c.sure] or [c for c in groups if c.key == "group-nccl"] or groups


def _outer_ends_first(
    by_key: dict[str, Timeout], timeouts: Sequence[Timeout], *, slurm_said: bool
) -> Iterator[Finding]:
    groups = _groups(timeouts)
    for outer in (by_key[key] for key in OUTER if key in by_key):
        if not groups or outer.seconds is None or (slurm_said and outer.key == "scheduler"):
            continue
        group = min(groups, key=lambda c: c.seconds or 0)
        if outer.seconds <= (group.seconds or 0):
            tell = FAULT.warning if group.sure else FAULT.note
            yield tell(
                f"{outer.name} ends the job after {exact_duration(outer.seconds)}, before a hang "
                f"is noticed ({group.name}: {exact_duration(group.seconds)})",
                reason="a hang would end with no message about its cause",
                evidence=_seen(outer, group),
                fix="give init_process_group a shorter timeout, or the job more time",
            )


def _connections(by_key: dict[str, Timeout]) -> Iterator[Finding]:
    group = by_key.get("group-nccl")
    if group is None or group.seconds is None:
        return
    for timeout in (by_key[k] for k in ("nccl-rdma", "nccl-socket") if k in by_key):
        if timeout.seconds is None or timeout.seconds >= group.seconds:
            yield FAULT.note(
                f"{timeout.name} outlasts the group: {exact_duration(timeout.seconds)} against "
                f"{exact_duration(group.seconds)}",
                reason="a broken link would show as a timeout of the collective, and not as the "
                "network's own error, which names the peer",
                evidence=_seen(timeout, group),
                fix=f"`unset {timeout.origin.partition('=')[0]}`"
                if "=" in timeout.origin
                else "give the group a longer timeout",
            )


def _not_inherited(job: Job) -> Iterator[Finding]:
    """new_group takes the default, not what init_process_group was given."""
    own = [a for a in job.asked if a.call == "init_process_group" and a.given and a.seconds]
    bare = [a for a in job.asked if a.call in HIDES and not a.given]
    if not own or not bare:
        return
    long, call = exact_duration(own[0].seconds), bare[0].call
    where = f"{bare[0].place.file}:{bare[0].place.line}"
    yield FAULT.note(
        f"{call} at {where} does not take over the {long} of init_process_group",
        reason="a new group gets the default (30 min; 10 min where its backend is just 'nccl') "
        "unless it is given its own timeout",
        evidence=[Evidence(quote=f"{call}(…) without timeout=", source=where)],
        fix=f"{call}(…, timeout=timedelta(seconds={own[0].seconds:.0f}))",
    )


def _rendezvous_keys(job: Job) -> Iterator[Finding]:
    """Each rendezvous reads its own keys and ignores the other's without a word."""
    given = launchers.configuration(job)
    kind = launchers.backend(job)
    wrong, right = ("timeout", "join_timeout")
    if kind == "static":
        wrong, right = right, wrong
    elif kind not in ("c10d", "etcd-v2"):
        return
    if wrong in given and right not in given:
        yield FAULT.warning(
            f"{given[wrong].origin} has no effect: the {kind} rendezvous reads {right}",
            reason="torchrun accepts any key, and each rendezvous reads only the keys it knows",
            evidence=[Evidence(quote=given[wrong].origin, source="command line")],
            fix=f"--rdzv-conf {right}={given[wrong].origin.rpartition('=')[2]}",
        )


def _patience(by_key: dict[str, Timeout], timeouts: Sequence[Timeout]) -> Iterator[Finding]:
    patience, groups = by_key.get("patience"), _groups(timeouts)
    if patience is None or patience.seconds is None or not groups:
        return
    group = min(groups, key=lambda c: c.seconds or 0)
    if patience.seconds >= (acts := wait_limit.act_after(group.seconds or 0)):
        yield FAULT.note(
            f"--patience {patience.seconds:g} has no effect: holdfast acts after {acts:g} s, "
            f"before the group's timeout of {exact_duration(group.seconds)}",
            reason="torch would abort then and blame a victim, so holdfast acts before",
            evidence=_seen(patience, group),
            fix="give the group a longer timeout, or leave --patience out",
        )


def _stall(by_key: dict[str, Timeout]) -> Iterator[Finding]:
    warn, stop = by_key.get("horovod-stall-warning"), by_key.get("horovod-stall-shutdown")
    if warn is None or stop is None or warn.seconds is None or stop.seconds is None:
        return
    if stop.seconds <= warn.seconds:
        yield FAULT.warning(
            f"Horovod will not end stalled jobs: the shutdown time, "
            f"{exact_duration(stop.seconds)}, is not above the warning time, "
            f"{exact_duration(warn.seconds)}",
            reason="it only applies where it is greater",
            evidence=_seen(stop, warn),
            fix="--stall-check-shutdown-time-seconds above the warning time",
        )
