"""Evidence about the port of a job: what listens there, what a bind said, what was left behind."""

from __future__ import annotations

from holdfast.analysis.machine import Connection, MachineFacts, Orphan, PortFacts, Process, known
from holdfast.findings import Evidence


def listener(connection: Connection) -> Evidence:
    """'pid 4711 `python train.py` of user kim listens on 0.0.0.0:29500'"""
    return Evidence(
        quote=f"{_owner(connection)} listens on {connection.local}", source="/proc/net/tcp"
    )


def _owner(connection: Connection) -> str:
    owner = connection.owner
    if isinstance(owner, Process):
        return owner.description
    hidden = f"a process of user {connection.user or 'unknown'}, pid not visible"
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
