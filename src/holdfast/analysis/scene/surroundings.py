"""What surrounds a rank: its node, and what that machine's kernel, processors and GPUs say. Pure.

On one machine that is the scene's own; with several, each rank has those of its own node.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from holdfast.analysis.machine import Unread
from holdfast.analysis.scene.cpu import Processor, Scheduler
from holdfast.analysis.scene.gpu import GpuEvent, GpuLook
from holdfast.analysis.scene.node_view import NodeView
from holdfast.analysis.scene.rdma import PortChange
from holdfast.analysis.scene.scene import RankView, Scene


class Surroundings(Protocol):
    """Of one machine; both a scene and a node have it."""

    @property
    def oom_kills(self) -> int: ...
    @property
    def kernel_events(self) -> tuple[str, ...] | Unread: ...
    @property
    def processor(self) -> Processor | Unread | None: ...
    @property
    def gpus(self) -> tuple[GpuLook, ...] | Unread | None: ...
    @property
    def gpu_events(self) -> tuple[GpuEvent, ...] | Unread: ...
    @property
    def rdma(self) -> tuple[PortChange, ...] | Unread | None: ...
    @property
    def scheduler(self) -> Scheduler | None: ...


def of_rank(scene: Scene, rank: int) -> Surroundings:
    return node_of(scene, rank) or scene


def node_of(scene: Scene, rank: int) -> NodeView | None:
    """None on one machine."""
    return scene.memo(_nodes_by_rank).get(rank)


def on_its_machine(scene: Scene, rank: int) -> list[RankView]:
    """That rank and those beside it."""
    here = of_rank(scene, rank)
    return [view for view in scene.ranks if of_rank(scene, view.rank) is here]


class Machine(NamedTuple):
    node: str
    """'' where a job has only one machine"""
    seen: Surroundings
    ranks: tuple[int, ...]


def machines(scene: Scene, ranks: Iterable[int]) -> tuple[Machine, ...]:
    """Those that these ranks run on, by node rank, each with its own of them."""
    wanted = sorted(set(ranks))
    if not scene.nodes:
        return (Machine("", scene, tuple(wanted)),)
    by_node: dict[str, list[int]] = {node.name: [] for node in scene.nodes}
    for rank in wanted:
        if node := node_of(scene, rank):
            by_node[node.name].append(rank)
    return tuple(
        Machine(node.name, node, tuple(own)) for node in scene.nodes if (own := by_node[node.name])
    )


def in_doubt(scene: Scene, one: int, other: int) -> float:
    """Seconds by which the times of two ranks may be wrong against each other: on one machine not
    at all."""
    mine, theirs = node_of(scene, one), node_of(scene, other)
    if mine is None or theirs is None or mine.name == theirs.name:
        return 0.0
    return mine.clock_bound + theirs.clock_bound


def _nodes_by_rank(scene: Scene) -> dict[int, NodeView]:
    return {rank: node for node in scene.nodes for rank in node.ranks}
