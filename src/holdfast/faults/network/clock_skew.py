"""The clocks of the machines do not agree.

What you see   Logs that show an effect before its cause: rank 5 reports a lost peer seconds
               'before' that peer died. Certificates or tokens that are 'not yet valid'. Files on
               shared storage with times in the future.
Why            Each machine stamps its log by its own clock. Unless something disciplines it
               (chrony, systemd-timesyncd, ntpd, ptp4l) a clock drifts by a second or more a day,
               and the order of events across machines can no longer be read from the logs.
               Timeouts are not affected: those run on clocks that only count.
How to be sure `chronyc tracking` or `timedatectl` on every machine. holdfast asks the kernel
               (adjtimex) whether anything has disciplined the clock lately. It cannot see a
               hypervisor or PTP daemon that sets the time without telling the kernel.
Fix            Start one time service on every machine: `systemctl enable --now chronyd` (Debian:
               chrony) or `timedatectl set-ntp true`. In a container it is the host's business.
Sources        https://man7.org/linux/man-pages/man2/adjtimex.2.html (STA_UNSYNC, maxerror)
               torvalds/linux kernel/time/ntp.c: the kernel gives the clock up at 16 s of error
"""

from __future__ import annotations

from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.machine import MachineFacts, known
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding

FAULT = Fault(code="HOLD214", slug="clock-skew")

TOO_SKEWED = FAULT.log_pattern(
    "too-skewed",
    r"RequestTimeTooSkewed|difference between the request time and the (?:current|server) time is"
    r" too large|LogPattern (?:not yet current|expired):|certificate is not yet valid"
    r"|[Tt]oken used (?:too early|before issued)|Clock skew too great",
    anchors=(
        *("RequestTimeTooSkewed", "between the request time and", "LogPattern not yet current"),
        *("LogPattern expired", "certificate is not yet valid", "oken used too early"),
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
def nobody_keeps_the_clock(facts: MachineFacts) -> Finding:
    if not facts.plan.multi_node:
        return FAULT.does_not_apply("one machine: all its ranks read the same clock")
    clock = known(facts.clock)
    if clock.synchronised:
        return FAULT.ok(f"the clock is kept in step, to {clock.max_error:.2g} s or better")
    return FAULT.warning(
        "nothing keeps the clock of this machine in step",
        reason="training does not mind, but logs of several machines cannot be put in order; the "
        "kernel would not know of a hypervisor that sets the time by itself",
        evidence=[
            Evidence(
                quote=f"STA_UNSYNC is set, error up to {clock.max_error:.3g} s", source="adjtimex"
            )
        ],
        fix="`timedatectl set-ntp true` or start chronyd, on every machine (for a container: on "
        "its host)",
    )


@FAULT.explain
def a_clock_was_found_wrong(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(TOO_SKEWED)
    stepped = wreckage.seen(STEPPED)
    if not seen and not stepped:
        return None
    first = (*seen, *stepped)[0]
    host = first.line.host
    amount = next((s.fields["seconds"] for s in stepped if "seconds" in s.fields), "")
    return FAULT.diagnosis(
        f"the clock of {host or 'this machine'} is wrong"
        + (f" by {amount} s" if amount else "")
        + (": a service refused its requests for it" if seen else ""),
        confidence=0.9 if seen else 0.35,
        seen=[*seen, *stepped],
        culprit=Culprit(host=host, what="the clock"),
        fix="start one time service on every machine: `timedatectl set-ntp true`, or chronyd (for "
        "a container: on its host)",
        next="timedatectl; chronyc tracking",
    )
