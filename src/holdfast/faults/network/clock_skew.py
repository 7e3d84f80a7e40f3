"""The clocks of the machines do not agree.

What you see   Logs that show an effect before its cause: rank 5 reports a lost peer seconds
               'before' that peer died. Certificates or tokens that are 'not yet valid'. Files on
               shared storage with times in the future.
Why            Each machine stamps its log with its own clock. Unless a time service corrects it
               (chrony, systemd-timesyncd, ntpd, ptp4l), a clock drifts by a second or more a day,
               and the order of events across machines can no longer be read from the logs. Timeouts
               are not affected: they use monotonic clocks.
How to be sure Run `chronyc tracking` or `timedatectl` on every machine. `holdfast check` asks the
               kernel (adjtimex) whether anything has corrected the clock recently.
Fix            Start one time service on every machine: `systemctl enable --now chronyd` (Debian:
               chrony) or `timedatectl set-ntp true`. In a container, do it on the host.
Known limits   holdfast cannot see a hypervisor or PTP daemon that sets the time without telling the
               kernel, and it does not compare the clocks of two machines.
Sources        https://man7.org/linux/man-pages/man2/adjtimex.2.html (STA_UNSYNC, maxerror)
               torvalds/linux kernel/time/ntp.c: the kernel gives the clock up at 16 s of error
"""

from __future__ import annotations

from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.machine import MachineFacts, known
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding

FAULT = Fault(code="HOLD214", slug="clock-skew", related=("env-mismatch-nodes", "version-skew"))

TOO_SKEWED = FAULT.log_pattern(
    "too-skewed",
    r"RequestTimeTooSkewed|difference between the request time and the (?:current|server) time is"
    r" too large|Signature (?:not yet current|expired):|certificate is not yet valid"
    r"|[Tt]oken used (?:too early|before issued)|Clock skew too great",
    anchors=(
        *("RequestTimeTooSkewed", "between the request time and", "Signature not yet current"),
        *("Signature expired", "certificate is not yet valid", "oken used too early"),
        *("oken used before issued", "Clock skew too great"),
    ),
    example="botocore.exceptions.ClientError: An error occurred (RequestTimeTooSkewed) when "
    "calling the PutObject operation: The difference between the request time and the current "
    "time is too large.",
)
STEPPED = FAULT.log_pattern(
    "stepped",
    r"System clock (?:wrong by|was stepped by) (?P<seconds>-?\d+(?:\.\d+)?) seconds"
    r"|clock difference against peer \S+ is too high \[(?P<peer>[\d.]+)m?s|[Cc]lock skew detected",
    anchors=(
        *("System clock wrong by", "System clock was stepped by"),
        *("clock difference against peer", "lock skew detected"),
    ),
    example="chronyd[812]: System clock wrong by 84.213811 seconds",
    role=Role.CONFIRMATION,
)


@FAULT.check(needs=("clock",))
def clock_is_not_synchronised(facts: MachineFacts) -> Finding:
    if not facts.plan.multi_node:
        return FAULT.does_not_apply("one machine: all ranks read the same clock")
    clock = known(facts.clock)
    if clock.synchronised:
        return FAULT.ok(f"the clock is synchronised, to {clock.max_error:.2g} s or better")
    return FAULT.warning(
        "the clock of this machine is not synchronised",
        reason="training is not affected, but logs of several machines cannot be put in order. A "
        "hypervisor that sets the time is invisible to the kernel",
        evidence=[
            Evidence(
                quote=f"STA_UNSYNC is set, error up to {clock.max_error:.3g} s", source="adjtimex"
            )
        ],
        fix="run `timedatectl set-ntp true`, or start chronyd, on every machine (for a container, "
        "on its host)",
    )


@FAULT.explain
def clock_was_wrong(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(TOO_SKEWED)
    stepped = wreckage.seen(STEPPED)
    if not seen and not stepped:
        return None
    first = (*seen, *stepped)[0]
    host = first.line.host
    amount = next((s.fields["seconds"] for s in stepped if "seconds" in s.fields), "")
    offset = f" by {amount} s" if amount else ""
    effect = ", so a service rejected its requests" if seen else ""
    return FAULT.diagnosis(
        f"the clock of {host or 'this machine'} was wrong{offset}{effect}",
        confidence=0.9 if seen else 0.35,
        seen=[*seen, *stepped],
        culprit=Culprit(host=host, what="the clock"),
        fix="start one time service on every machine: `timedatectl set-ntp true`, or chronyd (for "
        "a container, on its host)",
        next="timedatectl; chronyc tracking",
    )
