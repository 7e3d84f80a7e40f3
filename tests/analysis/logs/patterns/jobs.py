"""Wreckage of small jobs for the faults that need inference: positions and exits of ranks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from holdfast.analysis.logs.wreckage import Exit, LoggedException, LogLine, RankRemains, Wreckage
from holdfast.analysis.scene.scene import Collective, Frame, Recorder, Stack
from tests.analysis.logs.patterns.made import wreckage

SHAPE = "[1024] Float"


def a_line(
    text: str = "", *, rank: int | None = None, number: int = 1, source: str = ""
) -> LogLine:
    return LogLine(text=text, source=source or "job.log", number=number, rank=rank)


def stood(
    entered: int,
    finished: int | None = None,
    *,
    op: str = "",
    usual: str = "all_reduce",
    shape: str = SHAPE,
    group: str = "0",
    members: tuple[int, ...] = (),
) -> Recorder:
    """A recorder whose last entries are known; without `finished` the last one is open."""
    done = entered - 1 if finished is None else finished
    entries = tuple(
        Collective(
            group=group,
            sequence=n,
            op=op if op and n == entered else usual,
            backend="nccl",
            shape=shape if n == entered else SHAPE,
            finished=n <= done,
            created=100.0 + n,
            timeout=600.0,
        )
        for n in range(max(1, entered - 4), entered + 1)
    )
    return Recorder(
        collectives=entries,
        entered={group: entered},
        finished={group: done},
        members={group: members} if members else {},
    )


def an_exit(rank: int | None, code: int, *, first: bool = False, teardown: bool = False) -> Exit:
    line = a_line(f"failed (exitcode: {code}) local_rank: {rank} (pid: {1000 + (rank or 0)})")
    return Exit(code=code, line=line, rank=rank, pid=1000 + (rank or 0), first=first,
                teardown=teardown, teller="torchrun")  # fmt: skip


def a_raise(
    rank: int | None,
    kind: str,
    text: str = "",
    *,
    file: str = "train.py",
    order: int = 1,
    consequence: str = "",
    root_slugs: tuple[str, ...] = (),
    frames: bool = True,
) -> LoggedException:
    stack = tuple(Frame(function=f, file=file, line=88) for f in ("forward", "step", "main"))
    return LoggedException(
        kind=kind,
        text=text,
        frames=stack if frames else (),
        line=a_line(f"{kind}: {text}", rank=rank, number=order),
        consequence=consequence,
        root_slugs=root_slugs,
        order=order,
    )


def a_stack(function: str, file: str = "train.py", *, holds_gil: bool = False) -> Stack:
    frame = Frame(function=function, file=file, line=30)
    return Stack(frames=(frame,), active=holds_gil, holds_gil=holds_gil)


def a_job(
    *lines: str,
    world: int | None = 4,
    recorders: Mapping[int, Recorder] | None = None,
    dumped: Collection[int] | None = None,
    logs: Collection[int] = (),
    finished: Collection[int] = (),
    hosts: Mapping[int, str] | None = None,
    stacks: Mapping[int, Stack] | None = None,
    pids: Mapping[int, int] | None = None,
    stages: Mapping[int, int] | None = None,
    exits: Sequence[Exit] = (),
    raised: Sequence[LoggedException] = (),
    versions: Mapping[str, str] | None = None,
) -> Wreckage:
    """Ranks with a recorder have dumped it, unless told otherwise."""
    found = wreckage(*lines, world_size=world)
    recorders, hosts, stacks = recorders or {}, hosts or {}, stacks or {}
    heard = {r.rank: r for r in found.ranks}
    known = {*heard, *recorders, *logs, *finished, *hosts, *stacks, *(pids or {}), *(stages or {})}
    ranks = tuple(
        msgspec.structs.replace(
            read,
            host=hosts.get(rank, read.host),
            pid=(pids or {}).get(rank, read.pid),
            logs=(f"rank{rank}.log",) if rank in logs else (),
            recorder=recorders.get(rank, read.recorder),
            dumped=rank in (recorders if dumped is None else dumped),
            stack=stacks.get(rank),
            nccl_stage=(stages or {}).get(rank, read.nccl_stage),
            finished=rank in finished,
        )
        for rank in sorted(known)
        for read in (heard.get(rank, RankRemains(rank=rank)),)
    )
    return msgspec.structs.replace(
        found,
        ranks=ranks,
        exits=(*found.exits, *exits),
        raised=(*found.raised, *raised),
        versions=found.versions | dict(versions or {}),
    )


def timed_out(rank: int, *, seq: int = 11, op: str = "ALLREDUCE", numel: int = 1024) -> str:
    return (
        f"[rank{rank}]: [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL("
        f"SeqNum={seq}, OpType={op}, NumelIn={numel}, NumelOut={numel}, Timeout(ms)=600000) ran "
        "for 600012 milliseconds before timing out."
    )


def dump_observed(rank: int) -> str:
    return (
        f"[rank{rank}]: [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Observed flight recorder dump "
        "signal from another rank via TCPStore."
    )


def lost(rank: int) -> str:
    return (
        f"[rank{rank}]: ncclRemoteError: A call failed possibly due to a network error or a remote "
        "process exiting prematurely."
    )


HEALTHY = a_job(
    "vm:1:1 [0] NCCL INFO comm 0x1b rank 0 nranks 4 cudaDev 0 busId 60 - Init COMPLETE",
    "[rank0]: step 5 loss 0.1",
    finished=range(4),
)
STUCK = a_job(
    *map(timed_out, (0, 1, 3)),
    dump_observed(2),
    recorders={0: stood(11), 1: stood(11), 2: stood(10, 10), 3: stood(11)},
)
"""all but rank 2 time out in #11; rank 2 dumped, with #10 as its last"""
VANISHED = a_job(
    *map(timed_out, (0, 1, 3)),
    *map(dump_observed, (0, 1)),
    recorders={0: stood(11), 1: stood(11), 3: stood(11)},
    logs=range(4),
)
"""the same, but nothing of rank 2 after its last step"""
RESET = a_job(
    *map(lost, (0, 1, 3)),
    *map(dump_observed, (0, 1)),
    recorders={0: stood(11), 1: stood(11), 3: stood(11)},
    logs=range(4),
)
"""and here the others saw its connections close"""


def differ(one: str, other: str, *, ranks: tuple[int, int] = (0, 1)) -> str:
    return (
        f"[rank{ranks[0]}]: RuntimeError: Detected mismatch between collectives on ranks. Rank "
        f"{ranks[0]} is running collective: CollectiveFingerPrint({one}, TensorDtypes=Float, "
        "TensorDeviceTypes=TensorOptions(dtype=float (default), device=cuda)), but Rank "
        f"{ranks[1]} is running collective: CollectiveFingerPrint({other}, TensorDtypes=Float, "
        "TensorDeviceTypes=TensorOptions(dtype=float (default), device=cuda))."
    )
