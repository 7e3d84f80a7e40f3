"""What the RDMA ports of a job's nodes did since its ranks were started, in words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from holdfast.analysis.collectives import groups
from holdfast.analysis.scene import surroundings
from holdfast.analysis.scene.rdma import PortChange
from holdfast.analysis.scene.scene import Scene
from holdfast.findings import Evidence

MEANING = {
    "link_downed": "the link failed",
    "link_error_recovery": "the link recovered from errors",
    "symbol_error": "bits were received wrongly",
    "port_rcv_errors": "packets were received damaged",
    "rx_icrc_encapsulated": "packets were received damaged",
    "local_link_integrity_errors": "the link had too many errors",
    "local_ack_timeout_err": "the other end did not acknowledge",
    "unresponsive_remote_events": "the other end did not answer",
    "retrans_timeout_events": "the other end did not acknowledge",
    "max_retry_exceeded": "the other end never acknowledged",
    "packet_seq_err": "packets were lost",
    "implied_nak_seq_err": "packets were lost",
    "seq_err_naks_rcvd": "packets were lost",
    "rx_drops": "packets were dropped",
    "req_cqe_error": "transfers ended with an error",
}
"""of the counters that are worth a word; the gravest first"""
GRAVE = frozenset(
    {"link_downed", "local_ack_timeout_err", "unresponsive_remote_events", "max_retry_exceeded"}
)
"""counters that explain why a transfer waits or fails"""
MOST = 4
"""ports that are named"""


class ChangedPort(NamedTuple):
    node: str
    """'' where a job has only one machine"""
    change: PortChange

    @property
    def is_down(self) -> bool:
        return self.change.went_down

    @property
    def is_grave(self) -> bool:
        return self.is_down or not GRAVE.isdisjoint(self.change.errors)

    @property
    def what_happened(self) -> str:
        """'went from ACTIVE to DOWN, link_downed +1 (the link failed)'"""
        one = self.change
        parts = []
        if one.state != one.state_before:
            parts.append(f"went from {one.state_before} to {one.state}")
        if one.slowed_down:
            parts.append(f"went from {one.rate_before} to {one.rate}")
        order = [*MEANING, *sorted(one.errors.keys() - MEANING.keys())]
        for name in [name for name in order if name in one.errors][:MOST]:
            meaning = f" ({MEANING[name]})" if name in MEANING else ""
            parts.append(f"{name} +{one.errors[name]}{meaning}")
        return ", ".join(parts)


def changed(scene: Scene, ranks: Iterable[int]) -> list[ChangedPort]:
    """On the machines of these ranks, as far as it was looked at; the gravest first."""
    found = [
        ChangedPort(machine.node, change)
        for machine in surroundings.machines(scene, ranks)
        if isinstance(machine.seen.rdma, tuple)
        for change in machine.seen.rdma
    ]
    return sorted(found, key=lambda one: (not one.is_down, not one.is_grave))


def in_flight(scene: Scene) -> dict[int, str]:
    """Living ranks with a collective of NCCL that has not ended, and its title: the oldest."""
    living = {view.rank for view in scene.ranks if view.death is None}
    found = {}
    for rank, recorder in groups.of(scene).items():
        opened = [c for c in recorder.collectives if not c.finished and c.backend == "nccl"]
        if rank in living and opened:
            oldest = min(opened, key=lambda c: c.created)
            found[rank] = f"{oldest.op} #{oldest.sequence}{groups.in_words(oldest.group)}"
    return found


def evidence(found: Iterable[ChangedPort]) -> list[Evidence]:
    return [
        Evidence(
            quote=f"{one.change.port} {one.what_happened}, since the ranks were started",
            source="/sys/class/infiniband",
            host=one.node or None,
        )
        for one in list(found)[:MOST]
    ]
