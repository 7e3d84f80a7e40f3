"""The master port is already in use.

What you see   `DistNetworkError: The server socket has failed to listen on any local network
               address … EADDRINUSE`, within seconds of the start. Or the job starts and hangs,
               because its ranks joined the store of another job.
Why            Rank 0 (or torchrun's agent) opens torch's TCPStore on MASTER_PORT, 29500 by default.
               Another process already listens there: another job, a leftover process of an earlier
               run, or an unrelated service.
How to be sure `ss -ltnp 'sport = :29500'` names the listener. `holdfast check` binds the port
               exactly as the store does (SO_REUSEADDR, IPv6 dual stack, then IPv4), so its answer
               is the one the store will get.
Fix            Stop the listener if it is yours, or choose another port below the ephemeral range
               (20000-32767 on most machines): `--master-port` for torchrun, `--master_port` for
               deepspeed, MASTER_PORT for your own init_process_group. On one machine let torchrun
               pick a free port: `--standalone`.
Known limits   The owner of a listener is visible only to root or to the same user. A log shows that
               the port was in use, never which process held it.
Sources        torch/csrc/distributed/c10d/socket.cpp: listen rule, SO_REUSEADDR
               https://github.com/pytorch/pytorch/issues/126510
               https://docs.pytorch.org/docs/stable/elastic/run.html
"""

from __future__ import annotations

import errno

from holdfast.analysis.drill.host_acts import TakePort
from holdfast.analysis.drill.injection import Injection, Then
from holdfast.analysis.drill.rehearsal import Rehearsal
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

FAULT = Fault(
    code="HOLD101",
    slug="port-in-use",
    related=("foreign-job-on-port", "stale-process", "port-ephemeral"),
)
FAULT.errno(errno.EADDRINUSE, "another program holds the port")
FAULT.error_text(
    r"Ping failed, invalid value",
    "the process that answers at that address and port is not torch's store",
)
FAULT.log_patterns.extend(port_taken.ALL)


@FAULT.check(needs=("port", "port_ranges"))
def port_has_a_listener(facts: MachineFacts) -> Finding:
    plan = facts.plan
    if plan.port == 0:
        return FAULT.does_not_apply("the launcher picks the port itself")
    port = known(facts.port)
    if not port.listeners:
        return FAULT.ok(f"nothing listens on port {port.port}")
    if any(not bind.error for bind in port.binds):
        return FAULT.note(
            f"port {port.port} has a listener, but the store can still bind beside it",
            reason="the listener uses one address family only; the store falls back to the other",
            evidence=[port_evidence.listener(listener) for listener in port.listeners],
        )
    speak = FAULT.error if plan.port_named else FAULT.warning
    origin = f"given by {plan.port_origin}" if plan.port_named else "torchrun's default"
    return speak(
        f"port {port.port} is taken",
        reason=f"torch's store cannot listen there (port {origin}); tested by binding it as the "
        "store does",
        evidence=[*map(port_evidence.listener, port.listeners), port_evidence.binds(port)],
        fix=f"{_stop(port.listeners)}{rendezvous.choose_another_port(plan, facts.port_ranges)}",
    )


def _stop(listeners: tuple[Connection, ...]) -> str:
    pids = sorted({o.pid for o in (item.owner for item in listeners) if isinstance(o, Process)})
    return f"stop pid {', '.join(map(str, pids))} if it is yours, or " if pids else ""


@FAULT.explain
def port_could_not_be_bound(wreckage: Wreckage) -> Diagnosis | None:
    final = wreckage.seen(port_taken.LISTEN, port_taken.TAKEN, port_taken.ACCELERATE)
    tried = wreckage.seen(port_taken.BIND)
    seen = final or tried or wreckage.seen(port_taken.CUT)
    if not seen:
        return None
    port = port_taken.taken_port(wreckage)
    named = f"port {port}" if port else "its port"
    return FAULT.diagnosis(
        f"{_writer(seen[0])} could not listen on {named}: another process already did (another "
        "job, a leftover of an earlier run, or any other program)",
        confidence=0.93 if final else 0.7 if tried else 0.5,
        seen=seen,
        culprit=Culprit(host=seen[0].line.host, what=f"port {port}" if port else "the master port"),
        fix="stop the listener if it is yours, or choose another port: `torchrun --master-port "
        "29600 …`, MASTER_PORT=29600, or on one machine `torchrun --standalone`",
        next=f"ss -ltnp 'sport = :{port or 29500}'",
        ruled_out=["TIME_WAIT of an earlier store: it does not block a new one"],
        unknown=[
            "which process holds the port: run the command below on that machine while it does"
        ],
    )


def _writer(seen: Sighting) -> str:
    if seen.rank is not None:
        return f"rank {seen.rank}"
    return seen.line.host or "the process that hosts the store"


# --- drill ---------------------------------------------------------------------------------------


@FAULT.drill()
def another_program_has_the_port(_: Rehearsal) -> Injection:
    return Injection(
        does="another program listens on the master port before the start",
        act=TakePort(),
        then=Then.REFUSES,
        from_start=True,
        culprits=(),
        beside=("foreign-job-on-port",),
    )
