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

from holdfast.facts import MachineFacts, known
from holdfast.model import Evidence, Fault, Finding

FAULT = Fault(code="HOLD214", slug="clock-skew")


@FAULT.foresee
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
