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

from holdfast import rendezvous, wording
from holdfast.facts import Connection, MachineFacts, PortFacts, Process, known
from holdfast.model import Evidence, Fault, Finding

FAULT = Fault(code="HOLD101", slug="port-in-use")


@FAULT.foresee
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
        who = wording.process(owner)
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
