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

import errno

from holdfast.analysis.logs.patterns import port_taken
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.machine import (
    Connection,
    MachineFacts,
    Process,
    known,
    port_evidence,
    rendezvous,
)
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis, Finding

FAULT = Fault(code="HOLD101", slug="port-in-use")
FAULT.errno(errno.EADDRINUSE, "another program holds the port")
FAULT.error_text(
    r"Ping failed, invalid value", "what answers at that address and port is not torch's store"
)
FAULT.log_patterns.extend(port_taken.ALL)


@FAULT.check(needs=("port", "port_ranges"))
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
            evidence=[port_evidence.listener(listener) for listener in port.listeners],
        )
    speak = FAULT.error if plan.port_named else FAULT.warning
    origin = f"given by {plan.port_origin}" if plan.port_named else "torchrun's default"
    return speak(
        f"port {port.port} is taken",
        reason=f"the store cannot listen there (port {origin}); seen by binding as the store does",
        evidence=[*map(port_evidence.listener, port.listeners), port_evidence.binds(port)],
        fix=f"{_stop(port.listeners)}{rendezvous.choose_another_port(plan, facts.port_ranges)}",
    )


def _stop(listeners: tuple[Connection, ...]) -> str:
    pids = sorted({o.pid for o in (item.owner for item in listeners) if isinstance(o, Process)})
    return f"stop pid {', '.join(map(str, pids))} if it is yours, or " if pids else ""


@FAULT.explain
def the_bind_was_refused(wreckage: Wreckage) -> Diagnosis | None:
    final = wreckage.seen(port_taken.LISTEN, port_taken.TAKEN, port_taken.ACCELERATE)
    tried = wreckage.seen(port_taken.BIND)
    seen = final or tried or wreckage.seen(port_taken.CUT)
    if not seen:
        return None
    port = port_taken.taken_port(wreckage)
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


def _who(seen: Sighting) -> str:
    if seen.rank is not None:
        return f"rank {seen.rank}"
    return seen.line.host or "the process that hosts the store"
