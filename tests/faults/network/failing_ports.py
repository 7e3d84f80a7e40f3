"""Jobs whose ranks all wait in one collective of NCCL, and what RDMA ports did meanwhile."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.analysis.scene.rdma import PortChange
from holdfast.analysis.scene.scene import Scene
from tests.faults.test_over_nodes import with_node
from tests.run.scenes import STEPS, entry, held_up, on_nodes, waiting

NDR, HDR = "400 Gb/sec (4X NDR)", "200 Gb/sec (4X HDR)"


def a_change(port: str = "mlx5_3:1", **changes: Any) -> PortChange:
    usual: dict[str, Any] = {"state": "ACTIVE", "state_before": "ACTIVE", "rate": NDR,
                             "rate_before": NDR}  # fmt: skip
    return PortChange(port=port, **{**usual, **changes})


WENT_DOWN = a_change(state="DOWN", errors={"link_downed": 1})
FLAPPED = a_change(errors={"link_downed": 2, "symbol_error": 40})
UNANSWERED = a_change(errors={"local_ack_timeout_err": 12, "packet_seq_err": 9})
A_FEW_BITS = a_change(errors={"symbol_error": 3})


def all_wait(*ports: PortChange, **changes: Any) -> Scene:
    """Four ranks on two nodes, all inside #101; the ports are those of node b."""
    inside = msgspec.structs.replace(entry(STEPS + 1, finished=False), backend="nccl")
    scene = held_up({}, victim={"recorder": waiting(inside)}, **changes)
    return with_node(on_nodes(scene), "b", rdma=ports)
