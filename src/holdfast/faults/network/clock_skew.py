"""The clocks of the machines do not agree.

What you see   Logs that show an effect before its cause: rank 5 reports a lost peer seconds
               'before' that peer died. Certificates or tokens that are 'not yet valid'. Files on
               shared storage with times in the future.
Why            Each machine stamps its log with its own clock. Unless a time service corrects it
               (chrony, systemd-timesyncd, ntpd, ptp4l), a clock drifts by a second or more a day,
               and the order of events across machines can no longer be read from the logs. Timeouts
               are not affected: they use monotonic clocks.
How to be sure Run `chronyc tracking` or `timedatectl` on every machine. `holdfast check` asks the
               kernel (adjtimex) whether anything has corrected the clock recently; on several nodes
               it measures their offsets and says how exact that is.
Fix            Start one time service on every machine: `systemctl enable --now chronyd` (Debian:
               chrony) or `timedatectl set-ntp true`. In a container, do it on the host.
Known limits   holdfast cannot see a hypervisor or PTP daemon that sets the time without telling the
               kernel. An offset between nodes is known to half of a round trip: an order within
               that is a tie. Which clock is right is not known, only which one differs.
Sources        https://man7.org/linux/man-pages/man2/adjtimex.2.html (STA_UNSYNC, maxerror)
               torvalds/linux kernel/time/ntp.c: the kernel gives the clock up at 16 s of error
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast import text
from holdfast.analysis.drill import hosts
from holdfast.analysis.drill.injection import Injection, Then
from holdfast.analysis.drill.network_acts import ShiftClock
from holdfast.analysis.drill.rehearsal import Rehearsal
from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.machine import MachineFacts, known
from holdfast.analysis.nodes import Node, NodesFacts, clocks, differences
from holdfast.analysis.nodes.clocks import Spread
from holdfast.fault import SHOWN, Fault
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


LOGS_MIX_UP, LOGS_BLUR, LOGINS_FAIL = 1.0, 0.1, 300.0
"""seconds: events of different nodes in the wrong order; close ones too; munge (Slurm), Kerberos
and signed requests are refused"""


@FAULT.check_nodes
def clocks_of_nodes_differ(facts: NodesFacts) -> Finding | Sequence[Finding]:
    if len(facts.nodes) < 2:
        return FAULT.does_not_apply("one node")
    offsets, gaps = differences.of_each(facts, lambda node: node.clock)
    unknown = [FAULT.skipped(gap.why, host=gap.node) for gap in gaps]
    if len(offsets) < 2:
        return unknown
    found = clocks.spread(offsets)
    if found.at_least < LOGS_BLUR:
        tie = "no order among them is certain" if not found.at_least else "close enough for logs"
        agree = f"the clocks agree within {_seconds(found.seconds + found.bound)}: {tie}"
        return [FAULT.ok(agree), *unknown]
    evidence = [
        Evidence(
            quote=f"{name}: {offset.seconds:+.3f} s ± {offset.bound:.3f} s against "
            f"{facts.coordinator}",
            source="clock exchange",
            host=name,
        )
        for name, offset in sorted(offsets.items(), key=lambda item: -abs(item[1].seconds))
    ]
    return [_clocks_apart(found, evidence[:SHOWN]), *unknown]


@FAULT.refuted_by_nodes
def clocks_were_compared(facts: NodesFacts, node: Node) -> bool:
    """Whatever keeps it right, it is: no other node's clock differs from it by much."""
    offsets, gaps = differences.of_each(facts, lambda one: one.clock)
    return (
        node.name in offsets
        and len(offsets) > 1
        and not gaps
        and clocks.spread(offsets).at_least < LOGS_BLUR
    )


def _clocks_apart(found: Spread, evidence: list[Evidence]) -> Finding:
    apart = f"{_seconds(found.seconds)} (± {_seconds(found.bound)})"
    odd = f"; {text.names(found.odd)} differs from the rest" if len(found.odd) == 1 else ""
    speak, meaning = FAULT.warning, "an effect appears before its cause"
    if found.at_least >= LOGINS_FAIL:
        speak = FAULT.error
        meaning += ", and munge (Slurm), Kerberos and signed requests are refused"
    if found.at_least < LOGS_MIX_UP:
        return FAULT.note(
            f"the clock of {found.fastest} is {apart} ahead of {found.slowest}{odd}",
            reason="events that are closer together than that cannot be put in order by their logs",
            evidence=evidence,
            host=found.odd[0] if len(found.odd) == 1 else "",
        )
    return speak(
        f"the clock of {found.fastest} is {apart} ahead of {found.slowest}{odd}",
        reason=f"in logs of both {meaning}; files on shared storage have times in the future. "
        "Timeouts are not affected",
        evidence=evidence,
        fix=f"on {text.names(found.odd or (found.fastest, found.slowest))}: `sudo timedatectl "
        "set-ntp true`, then `chronyc makestep` or a restart of the time service",
        host=found.odd[0] if len(found.odd) == 1 else "",
    )


def _seconds(value: float) -> str:
    return text.exact_duration(value) if value >= 1 else f"{max(value, 0.001) * 1000:.0f} ms"


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


# --- drill ---------------------------------------------------------------------------------------


AHEAD = 90
"""seconds"""


@FAULT.drill(needs=("hosts",))
def set_the_clock_of_a_host(rehearsal: Rehearsal) -> Injection:
    host = hosts.other_host(rehearsal)
    return Injection(
        does=f"the clock of {host} is {AHEAD} s ahead, from the start",
        act=ShiftClock(host=host, seconds=AHEAD),
        then=Then.GOES_ON,
        from_start=True,
        culprits=(),
        hosts=rehearsal.job.hosts,
    )
