"""Evidence about the port of a job: what listens there, what a bind said, what was left behind."""

from __future__ import annotations

import math

from holdfast.analysis.machine import Connection, MachineFacts, Orphan, PortFacts, Process, known
from holdfast.findings import Evidence


def listener(listening: Connection) -> Evidence:
    """'pid 4711 `python train.py` of user kim listens on 0.0.0.0:29500'"""
    return Evidence(
        quote=f"{_owner(listening)} listens on {listening.local}", source="/proc/net/tcp"
    )


def connection(held: Connection) -> Evidence:
    """'10.0.0.5:29500 -> 10.0.0.9:443 TIME_WAIT, 41 s left, pid 4711 …', as far as it is known"""
    parts = [f"{held.local} -> {held.peer} {held.state}"]
    if held.seconds_left is not None:
        parts.append(f"{math.ceil(held.seconds_left)} s left")
    if held.owner is not None:
        parts.append(_owner(held))
    return Evidence(quote=", ".join(parts), source="/proc/net/tcp")


def _owner(held: Connection) -> str:
    owner = held.owner
    if isinstance(owner, Process):
        return owner.description
    hidden = f"a process of user {held.user or 'unknown'}, pid not visible"
    return f"{hidden} ({owner.why})" if owner else hidden


def binds(port: PortFacts) -> Evidence:
    """What the kernel said when the port was bound as torch's store binds it."""
    tries = ", ".join(f"{bind.family}: {bind.error or 'works'}" for bind in port.binds)
    return Evidence(quote=f"bind of port {port.port}: {tries}", source="bind(2)")


def orphans_on_port(facts: MachineFacts) -> list[Orphan]:
    """The orphans that listen on this job's port."""
    if facts.plan.port == 0:
        return []
    listeners = known(facts.port).listeners
    holders = {c.owner.pid for c in listeners if isinstance(c.owner, Process)}
    return [orphan for orphan in known(facts.leftovers).orphans if orphan.process.pid in holders]
