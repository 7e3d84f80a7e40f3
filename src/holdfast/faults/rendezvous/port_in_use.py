"""The master port is taken.

What you see   `DistNetworkError: The server socket has failed to listen on any local network
               address … EADDRINUSE`, within seconds of the start; or the job starts and hangs,
               because its ranks joined the store of another job.
Why            Rank 0 (or torchrun's agent) opens torch's key-value store on MASTER_PORT, 29500
               unless told otherwise. Some program listens there already: another job, a survivor
               of an earlier run, or any other service.
How to be sure `ss -ltnp 'sport = :29500'` names the listener. holdfast binds the port exactly as
               the store does (SO_REUSEADDR, IPv6 dual stack, then IPv4), so what it says is what
               the store will meet.
Fix            Stop the listener if it is yours, or choose another port below the ephemeral range
               (20000-32767 on most machines): `--master-port` for torchrun, `--master_port` for
               deepspeed, MASTER_PORT for your own init_process_group. On one machine let
               torchrun pick: `--standalone`.
Sources        torch/csrc/distributed/c10d/socket.cpp: listen rule, SO_REUSEADDR
               https://github.com/pytorch/pytorch/issues/126510
               https://docs.pytorch.org/docs/stable/elastic/run.html
"""

from __future__ import annotations

from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.machine import (
    Connection,
    MachineFacts,
    PortFacts,
    Process,
    known,
    rendezvous,
)
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding

FAULT = Fault(code="HOLD101", slug="port-in-use")

_TAKEN = (
    r"EADDRINUSE|[Aa]ddress already in use|errno: (?:98|48|10048)\b|Only one usage of each socket"
)
LISTEN = FAULT.log_pattern(
    "listen",
    r"server socket has failed to (?:listen on any local network address|bind\.)"
    rf"(?:.*?\bport: (?P<port>\d+))?.*(?:{_TAKEN})",
    anchors=("server socket has failed to",),
    example="torch.distributed.DistNetworkError: The server socket has failed to listen on any "
    "local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: "
    "address already in use",
)
BIND = FAULT.log_pattern(
    "bind",
    rf"server socket has failed to bind to \S+?:(?P<port>\d+) .*(?:{_TAKEN})",
    anchors=("server socket has failed to bind to",),
    example="[W socket.cpp:426] [c10d] The server socket has failed to bind to [::]:29500 (errno: "
    "98 - Address already in use).",
    # torchrun's c10d tries to host, and joins as a client where another agent hosts already
    role=Role.CONTEXT,
)
TAKEN = FAULT.log_pattern(
    "taken",
    r"(?:RuntimeError|OSError|ZMQError|socket\.error|DistNetworkError|std::system_error|bind\b[^:]*?)"
    r" ?: ?(?:\[Errno (?:98|48)\] )?(?:error while attempting to bind on address "
    r"\('[^']*', (?P<port>\d+)\): )?[Aa]ddress already in use",
    anchors=("ddress already in use",),
    example="RuntimeError: Address already in use",
)
CUT = FAULT.log_pattern(
    "cut",
    # The reason follows on the same line, where the line is whole.
    r"server socket has failed to listen on any local network address\.?\s*$",
    anchors=("server socket has failed to listen",),
    example="[E socket.cpp:435] [c10d] The server socket has failed to listen on any local network "
    "address.",
    role=Role.CONTEXT,
)
ACCELERATE = FAULT.log_pattern(
    "accelerate",
    r"launch distributed communication on port `?(?P<port>\d+)`?, but another process is utilizing",
    anchors=("but another process is utilizing it",),
    example="ConnectionError: Tried to launch distributed communication on port `29500`, but "
    "another process is utilizing it. Please specify a different port",
)


@FAULT.check
def port_has_a_listener(facts: MachineFacts) -> Finding:
    plan = facts.plan
    if plan.port == 0:
        return FAULT.does_not_apply("the launcher picks the port itself")
    port = known(facts.port)
    if not port.listeners:
        return FAULT.ok(f"nobody listens on port {port.port}")
    if any(not bind.error for bind in port.binds):
        return FAULT.note(
            f"port {port.port} has a listener, but the store can still bind beside it",
            reason="it listens on one address family only; the store falls back to the other",
            evidence=[describe(listener) for listener in port.listeners],
        )
    speak = FAULT.error if plan.port_named else FAULT.warning
    origin = f"given by {plan.port_origin}" if plan.port_named else "torchrun's default"
    return speak(
        f"port {port.port} is taken",
        reason=f"the store cannot listen there (port {origin}); seen by binding as the store does",
        evidence=[*map(describe, port.listeners), describe_tries(port)],
        fix=f"{_stop(port.listeners)}{rendezvous.choose_another_port(plan, facts.port_ranges)}",
    )


def describe(listener: Connection) -> Evidence:
    owner = listener.owner
    if isinstance(owner, Process):
        who = owner.description
    else:
        who = f"a process of user {listener.user or 'unknown'}, pid not visible"
        who += f" ({owner.why})" if owner else ""
    return Evidence(quote=f"{who} listens on {listener.local}", source="/proc/net/tcp")


def describe_tries(port: PortFacts) -> Evidence:
    tries = ", ".join(f"{bind.family}: {bind.error or 'works'}" for bind in port.binds)
    return Evidence(quote=f"bind of port {port.port}: {tries}", source="bind(2)")


def _stop(listeners: tuple[Connection, ...]) -> str:
    pids = sorted({o.pid for o in (item.owner for item in listeners) if isinstance(o, Process)})
    return f"stop pid {', '.join(map(str, pids))} if it is yours, or " if pids else ""


@FAULT.explain
def the_bind_was_refused(wreckage: Wreckage) -> Diagnosis | None:
    final = wreckage.seen(LISTEN, TAKEN, ACCELERATE)
    tried = wreckage.seen(BIND)
    seen = final or tried or wreckage.seen(CUT)
    if not seen:
        return None
    port = taken_port(wreckage)
    named = f"port {port}" if port else "the port it was to listen on"
    return FAULT.diagnosis(
        f"{_who(seen[0])} could not listen on {named}: somebody listens there already, another "
        "job, a survivor of an earlier run, or any other program",
        confidence=0.93 if final else 0.7 if tried else 0.5,
        seen=seen,
        culprit=Culprit(host=seen[0].line.host, what=f"port {port}" if port else "the master port"),
        fix="stop the listener if it is yours, or take another port: `torchrun --master-port "
        "29600 …`, MASTER_PORT=29600, or on one machine `torchrun --standalone`",
        next=f"ss -ltnp 'sport = :{port or 29500}'",
        ruled_out=["TIME_WAIT of an earlier store: it would not stand in the way of a new one"],
        unknown=["who holds the port: only a look at the machine, while it does, can tell"],
    )


def taken_port(wreckage: Wreckage) -> int | None:
    """The port that could not be had, where a line says its number."""
    seen = wreckage.seen(LISTEN, BIND, TAKEN, ACCELERATE)
    ports = (one.fields["port"] for one in seen if "port" in one.fields)
    return next((int(port) for port in ports if len(port) < 6), None)


def _who(seen: Sighting) -> str:
    if seen.rank is not None:
        return f"rank {seen.rank}"
    return seen.line.host or "the process that hosts the store"
