"""The master port is in the range that the kernel uses for outgoing connections.

What you see   `EADDRINUSE` on some launches only, although no program listens on the port; a minute
               later the same command works.
Why            The kernel gives every outgoing connection a source port from ip_local_port_range
               (32768-60999 by default). If that is your port, the store cannot bind it while the
               connection is open, nor for the 60 s of TIME_WAIT after this side closed it, even
               with SO_REUSEADDR. TIME_WAIT left by the store itself is harmless: its sockets had
               SO_REUSEADDR, and a new store can listen there at once.
How to be sure `ss -tano 'sport = :PORT'` shows the connection, or `timer:(timewait,41sec,0)`.
               `holdfast check` tries the bind itself: it reports TIME_WAIT as harmless when the
               bind works.
Fix            Choose a port below the range (20000-32767 on most machines), or reserve yours with
               net.ipv4.ip_local_reserved_ports. Waiting helps once: TIME_WAIT is fixed at 60 s.
               net.ipv4.tcp_fin_timeout does not shorten it (it limits FIN_WAIT_2), and
               net.ipv4.tcp_tw_reuse affects outgoing connections, never a bind.
Known limits   A log does not show the machine's own range, so `explain` assumes Linux's default and
               puts this below port-in-use. `lint` knows the range of the machine it runs on only.
Sources        https://docs.kernel.org/networking/ip-sysctl.html
               torvalds/linux include/net/tcp.h: TCP_TIMEWAIT_LEN
               torch/csrc/distributed/c10d/socket.cpp: SO_REUSEADDR before bind
               https://github.com/NVIDIA/enroot/issues/243
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from holdfast.analysis.logs.patterns import port_taken
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.machine import (
    MachineFacts,
    PortFacts,
    known,
    port_evidence,
    rendezvous,
)
from holdfast.analysis.source.launch import master, port_loops, random_ports
from holdfast.analysis.source.source import Source, SourceSetting
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding, Place

FAULT = Fault(
    code="HOLD102",
    slug="port-ephemeral",
    related=("port-in-use", "permission-denied", "sysctl-useless"),
)


@FAULT.check(needs=("port_ranges",))
def port_is_in_the_ephemeral_range(facts: MachineFacts) -> Finding:
    plan = facts.plan
    if plan.port == 0:
        return FAULT.does_not_apply("the launcher picks the port itself")
    ranges = known(facts.port_ranges)
    span = f"{ranges.ephemeral_low}-{ranges.ephemeral_high}"
    if not rendezvous.is_ephemeral(ranges, plan.port):
        return FAULT.ok(f"port {plan.port} is outside the ephemeral range {span} or reserved")
    advice = rendezvous.choose_another_port(plan, ranges)
    reserve = rendezvous.reserve(plan, ranges)
    return FAULT.warning(
        f"any outgoing connection may take port {plan.port}",
        reason=f"it is in the ephemeral range {span} and not reserved: the launch fails whenever "
        "the kernel has given it to a connection",
        evidence=[Evidence(quote=span, source="/proc/sys/net/ipv4/ip_local_port_range")],
        fix=advice if reserve in advice else f"{advice}, or reserve this one: {reserve}",
    )


@FAULT.check(needs=("port", "port_ranges"))
def outgoing_connection_blocks_the_port(facts: MachineFacts) -> Finding | Sequence[Finding]:
    if facts.plan.port == 0:
        return ()  # said above
    port = known(facts.port)
    if port.listeners:
        return FAULT.ok(f"port {port.port} has a listener: see port-in-use")
    refused = [bind for bind in port.binds if bind.error == "EADDRINUSE"]
    if refused and all(bind.error for bind in port.binds):
        return _blocked(facts, port)
    if refused:
        return FAULT.note(
            f"port {port.port} can be bound on one address family only",
            reason="a connection holds it on the other; the store falls back to the free one",
            evidence=[port_evidence.connection(held) for held in port.others]
            or [port_evidence.binds(port)],
        )
    waiting = sum(held.state == "TIME_WAIT" for held in port.others)
    if waiting:
        return FAULT.ok(
            f"port {port.port} can be bound; its {waiting} TIME_WAIT entries are server-side and "
            "harmless"
        )
    return FAULT.ok(f"no connection blocks port {port.port}")


def _blocked(facts: MachineFacts, port: PortFacts) -> Finding:
    speak = FAULT.error if facts.plan.port_named else FAULT.warning
    choose = rendezvous.choose_another_port(facts.plan, facts.port_ranges)
    alive = [held for held in port.others if held.state != "TIME_WAIT"]
    seconds = math.ceil(max((held.seconds_left or 0.0 for held in port.others), default=0.0))
    evidence = [port_evidence.connection(held) for held in port.others] or [
        port_evidence.binds(port)
    ]
    if alive:
        return speak(
            f"port {port.port} is held by an outgoing connection",
            reason="no program listens there, yet the bind fails: the port is the source port of a "
            "connection and stays blocked until up to 60 s after that closes",
            evidence=evidence,
            fix=choose,
        )
    if port.others:
        return speak(
            f"port {port.port} is blocked by TIME_WAIT for another {seconds} s",
            reason="an outgoing connection with this source port was closed on this machine; the "
            "bind fails even with SO_REUSEADDR, and no sysctl shortens the wait",
            evidence=evidence,
            fix=f"wait {seconds} s, or {choose}",
        )
    return speak(
        f"port {port.port} cannot be bound, and no socket is listed on it",
        reason="most likely a program bound it without listening: the kernel's socket table does "
        "not list such sockets",
        evidence=evidence,
        fix=f"{choose}, or look for the holder: `sudo lsof -nP -iTCP:{port.port}`",
    )


USUAL_RANGE = range(32768, 61000)
"""Linux's default; a log does not show the machine's own setting"""


@FAULT.explain
def taken_port_is_ephemeral(wreckage: Wreckage) -> Diagnosis | None:
    """The log line is that of a listener; only the port's number suggests this."""
    port = port_taken.taken_port(wreckage)
    if port not in USUAL_RANGE:
        return None
    return FAULT.diagnosis(
        f"port {port} could not be bound, and it is in Linux's default range for outgoing "
        "connections: one of those, or its TIME_WAIT of up to 60 s, may have blocked it",
        confidence=0.4,
        seen=wreckage.seen(*port_taken.ALL),
        culprit=Culprit(what=f"port {port}"),
        fix=f"choose a port below 32768 (`--master-port 29600`), or reserve this one: `sudo sysctl "
        f"-w net.ipv4.ip_local_reserved_ports={port}`",
        next=f"ss -tano 'sport = :{port}'; sysctl net.ipv4.ip_local_port_range",
        unknown=["what held the port: a listener is more common"],
    )


# --- in what a user wrote ------------------------------------------------------------------------

LAST_PORT = 65535
WARN_SHARE = 0.1
"""of the draws; below this a clash is rare enough for a note"""
CHOOSE = "use a port below the range, such as 29600, or let torchrun choose: `--standalone`"


@FAULT.lint
def written_port_is_ephemeral(source: Source) -> Iterator[Finding]:
    low, high = source.here.ephemeral
    for said in master.ports(source):
        port = int(said.value) if said.value.isascii() and said.value.isdigit() else 0
        if port > LAST_PORT:
            yield FAULT.error(
                f"port {port} does not exist",
                reason=f"the highest port is {LAST_PORT}; torch's store rejects the number",
                fix=CHOOSE,
                at=said.place,
            )
        elif 0 < port < 1024:
            yield FAULT.warning(
                f"port {port} is privileged",
                reason="only root may bind ports below 1024; other users get EACCES (Permission "
                "denied)",
                fix=CHOOSE,
                at=said.place,
            )
        elif low <= port <= high:
            yield FAULT.warning(
                f"any outgoing connection may take port {port}",
                reason=f"it is in the ephemeral range {low}-{high}: a launch sometimes fails with "
                "EADDRINUSE and works a minute later",
                fix=CHOOSE,
                at=said.place,
            )


@FAULT.lint
def random_port_may_be_ephemeral(source: Source) -> Iterator[Finding]:
    low, high = source.here.ephemeral
    for written, place in _drawn(source):
        drawn = random_ports.span(written)
        if drawn is None or not random_ports.is_drawn(written):
            continue
        least, most = drawn
        if most > LAST_PORT:
            yield FAULT.error(
                f"this draws ports up to {most}, but the highest port is {LAST_PORT}",
                reason="a launch that draws a higher one fails",
                fix=CHOOSE,
                at=place,
            )
        elif least <= high and most >= low:
            share = (min(most, high) - max(least, low) + 1) / (most - least + 1)
            speak = FAULT.warning if share >= WARN_SHARE else FAULT.note
            yield speak(
                f"this draws ports from {least} to {most}, which outgoing connections use too",
                reason=f"{share:.0%} of them are in the ephemeral range {low}-{high}; a port that "
                "a connection holds, even in TIME_WAIT, cannot be bound",
                fix=f"draw from 20000 to 32767 (`{_draw(source)}`), or let torchrun choose: "
                "`--standalone`",
                at=place,
            )


def _draw(source: Source) -> str:
    if source.program is not None:
        return "random.randint(20000, 32767)"
    return "$(( 20000 + RANDOM % 12768 ))"


def _drawn(source: Source) -> Iterator[tuple[str, Place]]:
    """Ports computed when the script runs: in variables, and in options that use none of them."""
    written: set[str] = set()
    for setting in source.settings:
        if not setting.known and _for_the_master(source, setting):
            written.add(setting.written)
            yield setting.written, setting.place
    for launch in source.launches:
        for name in (*master.PORT_FLAGS, "rdzv-endpoint"):
            flag = launch.flag(name)
            if flag is not None and not flag.known:
                worked_out = flag.value.rfind("$((")  # of `$(hostname):$(( … ))`
                drawn = flag.value[max(worked_out, 0) :]
                if drawn not in written:
                    yield drawn, flag.place


def _for_the_master(source: Source, setting: SourceSetting) -> bool:
    if setting.name in master.PORT_VARIABLES:
        return True
    asks = any(s.name in master.PORT_VARIABLES for s in source.settings) or any(
        launch.flag(*master.PORT_FLAGS, "rdzv-endpoint") for launch in source.launches
    )
    return asks and port_loops.is_port(setting.name)
