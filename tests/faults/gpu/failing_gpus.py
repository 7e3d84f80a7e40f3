"""GPUs that fail under a running job, and what looks like it."""

from __future__ import annotations

from typing import Any

from holdfast.analysis.machine import Unread
from holdfast.analysis.scene.gpu import GpuEvent, GpuLook
from holdfast.analysis.scene.scene import Scene
from tests.faults.table import notices, overlooks
from tests.run.scenes import NOW, a_rank, a_scene, ended, held_up, lost_its_peer, on_nodes, words

GIB = 1 << 30
LOST = "GPU is lost"


def gpu(rank: int, **changes: Any) -> GpuLook:
    """The GPU of that rank, by its pid, at work."""
    look: dict[str, Any] = {
        "index": rank,
        "uuid": f"GPU-{rank}",
        "busy": 100,
        "power": 118.0,
        "limit": 700.0,
        "pids": (4000 + rank,),
        "bus_id": f"00000000:{0x3A + rank:02X}:00.0",
        "memory": 61 * GIB,
        "memory_total": 80 * GIB,
        "uncorrected": 0,
    }
    return GpuLook(**{**look, **changes})


def gpus(**changes: Any) -> tuple[GpuLook, ...]:
    """Four, of which the one of rank 2 is changed."""
    return tuple(gpu(rank, **(changes if rank == 2 else {})) for rank in range(4))


def xid(number: int, rank: int | None = None, *, bus: int = 2, rest: str = "…") -> GpuEvent:
    slot = f"0000:{0x3A + bus:02x}:00"
    pid = None if rank is None else 4000 + rank
    line = f"NVRM: Xid (PCI:{slot}): {number}, pid={pid or '<unknown>'}, name=python, {rest}"
    return GpuEvent(number=number, bus_id=slot, line=line, pid=pid)


def crashed(*others: int, **changes: Any) -> Scene:
    """Rank 2 raised; `others` had lost their connection before that."""
    error = words("RuntimeError", "CUDA error: unspecified launch failure", at=NOW - 0.5)
    views = [
        ended(2, 1, at=NOW - 0.4, said=error)
        if rank == 2
        else lost_its_peer(rank)
        if rank in others
        else a_rank(rank)
        for rank in range(4)
    ]
    return a_scene(views, evidence_at=NOW - 0.1, gpus=gpus(), **changes)


STALLED = held_up({2: {}}, gpus=gpus(), gpu_events=())
FELL_OFF = xid(79, rest="GPU has fallen off the bus.")

CASES = (
    # by the bus id alone: the driver often names no process
    notices(
        crashed(gpu_events=(FELL_OFF,)),
        ranks=[2],
        victims=[0, 1, 3],
        certain=True,
        saying=["the GPU of rank 2", "Xid 79", "fell off the bus", "exited as a result"],
    ),
    # a victim that ended before it is none the less one
    notices(
        crashed(0, 1, 3, gpu_events=(xid(48, 2),)),
        ranks=[2],
        victims=[0, 1, 3],
        certain=True,
        saying=["Xid 48", "ECC"],
    ),
    notices(
        held_up({2: {}}, gpus=gpus(lost=LOST)),
        ranks=[2],
        victims=[0, 1, 3],
        certain=True,
        saying=["the driver lost GPU 2", LOST],
    ),
    # its node cannot run its ranks any more: the next attempt should do without it
    notices(
        on_nodes(held_up({2: {}}, gpus=gpus(lost=LOST))),
        ranks=[2],
        hosts=["b"],
        certain=True,
        saying=[LOST],
    ),
    # a rank that lives may still end by itself
    notices(
        held_up({2: {}}, gpus=gpus(), gpu_events=(xid(119),)),
        ranks=[2],
        certain=False,
        saying=["Xid 119", "GSP"],
    ),
    notices(
        held_up({2: {}}, gpus=gpus(new_uncorrected=2)),
        ranks=[2],
        certain=False,
        saying=["2 memory errors that ECC could not correct"],
    ),
    # links of the neighbours go down with it
    notices(
        held_up({2: {}}, gpus=gpus(), gpu_events=(xid(74, bus=1), xid(74, bus=3), FELL_OFF)),
        ranks=[2],
        certain=True,
        saying=["Xid 79"],
    ),
    overlooks(STALLED),
    overlooks(crashed(gpu_events=())),
    overlooks(crashed(gpu_events=Unread(why="kernel log not readable"))),
    # of the program, of another GPU, what follows from another, what recovered
    overlooks(crashed(gpu_events=(xid(31, 2), xid(43, 2), xid(45, 2), xid(94, bus=9)))),
    overlooks(crashed(gpu_events=(xid(79, bus=7),))),
    overlooks(crashed(gpu_events=(xid(63),))),
    overlooks(crashed(gpu_events=(xid(149, rest="NETIR_LINK_EVT Nonfatal XC0 i0 Link 08"),))),
    overlooks(
        crashed(gpu_events=(GpuEvent(number=79, bus_id="0000:3c:00", line="SXid", switch=True),))
    ),
    # four ranks on one GPU: whose memory it was is not known
    overlooks(held_up({2: {}}, gpus=(gpu(0, pids=(4000, 4001, 4002, 4003), new_uncorrected=1),))),
)
