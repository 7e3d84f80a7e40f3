"""One scene from the reports of all nodes. Pure.

Every report is in the coordinator's clocks already. Of a node that is not heard the newest report
stays, and `Scene.nodes` says how old it is: not heard is not silent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from holdfast.analysis.scene.node_view import NodeView
from holdfast.analysis.scene.scene import Scene

if TYPE_CHECKING:
    from holdfast.run.nodes.messages import NodeReport, RoundNode, RoundStart
    from holdfast.run.watch.peers import PeerState


def scene_of_node(own: NodeReport, attempt: int, started_at: float) -> Scene:
    """What one node sees by itself."""
    return Scene(
        now=own.at,
        attempt=attempt,
        started_at=started_at,
        ranks=own.ranks,
        longest_pause=0.0,
        oom_kills=own.oom_kills,
        kernel_events=own.kernel_events,
        told_to_stop="",
        evidence_at=own.evidence_at,
        evidence_wall=own.evidence_wall,
        processor=own.processor,
        gpus=own.gpus,
        gpu_events=own.gpu_events,
        rdma=own.rdma,
    )


def with_peers(
    scene: Scene, own: NodeReport, round_: RoundStart, peers: Mapping[str, PeerState]
) -> Scene:
    """The scene of this node, and those of the others around it."""
    reports = {name: state.report for name, state in peers.items() if state.report is not None}
    ranks = [view for report in reports.values() for view in report.ranks]
    ranks = sorted([*own.ranks, *ranks], key=lambda view: view.rank)
    seen = [report for report in (own, *reports.values()) if report.evidence_at]
    # Ages count from the oldest look, so that none is taken for older than it is.
    oldest = min(seen, key=lambda report: report.evidence_at, default=own)
    nodes = tuple(
        _peer(node, round_, peers[node.name])
        if node.name in peers
        else _own(node, round_, own, scene)
        for node in round_.nodes
    )
    return msgspec.structs.replace(
        scene,
        ranks=tuple(ranks),
        evidence_at=oldest.evidence_at if own.evidence_at else 0.0,
        evidence_wall=oldest.evidence_wall if own.evidence_at else 0.0,
        nodes=nodes,
    )


def _numbers(node: RoundNode) -> tuple[int, ...]:
    return tuple(range(node.first_rank, node.first_rank + node.nproc))


def _own(node: RoundNode, round_: RoundStart, own: NodeReport, scene: Scene) -> NodeView:
    return NodeView(
        name=node.name,
        ranks=_numbers(node),
        heard_at=own.at,
        coordinates=True,
        serves_store=round_.store_node == node.name,
        addresses=node.addresses,
        oom_kills=own.oom_kills,
        kernel_events=own.kernel_events,
        processor=own.processor,
        gpus=own.gpus,
        gpu_events=own.gpu_events,
        rdma=own.rdma,
        scheduler=scene.scheduler,
        told_to_stop=scene.told_to_stop,
        connections=own.connections,
    )


def _peer(node: RoundNode, round_: RoundStart, state: PeerState) -> NodeView:
    view = NodeView(
        name=node.name,
        ranks=_numbers(node),
        hearing=state.hearing,
        silent=state.silent,
        farewell=state.farewell,
        farewell_words=state.farewell_words,
        machine_answers=state.machine_answers,
        serves_store=round_.store_node == node.name,
        addresses=node.addresses,
        scheduler=state.told.scheduler if state.told else None,
        told_to_stop=state.told.signal if state.told else "",
    )
    if (report := state.report) is None:
        return view
    return msgspec.structs.replace(
        view,
        heard_at=report.at,
        clock_bound=report.clock_bound,
        oom_kills=report.oom_kills,
        kernel_events=report.kernel_events,
        processor=report.processor,
        gpus=report.gpus,
        gpu_events=report.gpu_events,
        rdma=report.rdma,
        connections=report.connections,
    )
