"""Records and results of smoke tests, to change the one thing a test is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from holdfast.analysis.machine import Reach, Smoke, SmokeStage
from holdfast.check.smoke.judge import judge
from holdfast.check.smoke.stages import LADDER, PAIR_BYTES, STAGES, TOP_RUNG, Record

LOOPBACK = (Reach(address="127.0.0.1", port=20001, error="", seconds=0.001),)
WORLD = 4


def started(rank: int) -> Record:
    return Record(rank=rank, kind="started", stage="start", pid=100 + rank)


def done(rank: int, stage: str, **changes: Any) -> Record:
    record = Record(rank=rank, kind="done", stage=stage)
    if stage == "start":
        record = record._replace(pid=100 + rank, device="cpu", master="127.0.0.1:29500")
    return record._replace(**changes)


def rungs(rank: int, stage: str = "gloo") -> list[Record]:
    return [Record(rank=rank, kind="rung", stage=stage, size=size, seconds=0.5) for size in LADDER]


def up_to(last: str, ranks: Iterable[int] = range(WORLD)) -> list[Record]:
    """Everything these ranks report until they have finished a stage."""
    records = []
    for rank in ranks:
        records.append(started(rank))
        for stage in STAGES[: STAGES.index(last) + 1]:
            records += rungs(rank, stage) if stage in ("gloo", "nccl") else []
            records.append(done(rank, stage))
    return records


def no_nccl() -> list[Record]:
    text = "this build of torch has no NCCL"
    return [Record(rank=r, kind="skipped", stage="nccl", text=text) for r in range(WORLD)]


def error(rank: int, stage: str, text: str) -> Record:
    return Record(rank=rank, kind="error", stage=stage, text=text)


def exit_of(rank: int, stage: str, code: int, text: str = "") -> Record:
    return Record(rank=rank, kind="exit", stage=stage, pid=100 + rank, code=code, text=text)


def late(rank: int, stage: str, state: str = "S") -> Record:
    return Record(rank=rank, kind="late", stage=stage, text=state)


def gpu_uuid(rank: int) -> str:
    """As tests/faults/made_gpus.py has it."""
    return f"GPU-00000000-0000-0000-0000-00000000000{rank}"


def channels(world: int, way: str) -> list[Record]:
    """What NCCL prints of a ring over all ranks, two channels each."""
    mark = "[send] " if way.startswith("NET") else ""
    return [
        Record(
            rank=rank,
            kind="nccl",
            stage="nccl",
            text=f"n:1:1 [{rank}] NCCL INFO Channel {channel:02d}/0 : {rank}[{rank}] -> "
            f"{(rank + 1) % world}[{(rank + 1) % world}] {mark}via {way}",
        )
        for rank in range(world)
        for channel in range(2)
    ]


def gpu_smoke(
    world: int = WORLD,
    *,
    way: str = "P2P/CUMEM/read",
    speed: float = 350e9,
    pair_speed: float = 300e9,
    slow: Mapping[tuple[int, int], float] = MappingProxyType({}),
    more: Iterable[Record] = (),
) -> Smoke:
    """NCCL among the GPUs of one machine, all well; `slow`: the speed of single pairs."""
    ranks = range(world)
    seconds = 2 * (world - 1) / world * TOP_RUNG / speed
    records = [
        *up_to("gloo", ranks),
        *channels(world, way),
        *(Record(rank=r, kind="rung", stage="nccl", size=TOP_RUNG, seconds=seconds) for r in ranks),
        *(
            Record(
                rank=rank,
                kind="pair",
                stage="nccl",
                peer=peer,
                size=PAIR_BYTES,
                seconds=PAIR_BYTES / slow.get((min(rank, peer), max(rank, peer)), pair_speed),
            )
            for rank in ranks
            for peer in ranks
            if peer != rank
        ),
        *(done(rank, "nccl", gpu=gpu_uuid(rank)) for rank in ranks),
        *more,
    ]
    return judge(world, records, loopback=LOOPBACK, seconds=60.0)


def verdict(records: list[Record], **changes: Any) -> Smoke:
    settings: dict[str, Any] = {"loopback": LOOPBACK, "seconds": 60.0} | changes
    return judge(WORLD, records, **settings)


def failure(smoke: Smoke) -> SmokeStage:
    failed = [stage for stage in smoke.stages if stage.status == "failed"]
    assert len(failed) == 1, smoke.stages
    return failed[0]


def a_smoke() -> Smoke:
    """Four ranks on a machine without GPUs, all well."""
    return verdict(up_to("gloo") + no_nccl() + [exit_of(r, "end", 0) for r in range(WORLD)])
