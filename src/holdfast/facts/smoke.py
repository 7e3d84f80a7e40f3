"""What the smoke test saw."""

from __future__ import annotations

from holdfast.facts.base import Fact


class SmokeRank(Fact, frozen=True):
    rank: int
    pid: int
    device: str
    """'cpu', 'cuda:0'; '' when it never said"""
    master: str
    reached: str
    """the last stage it finished: '', 'start', 'store', 'gloo', 'nccl'"""
    error: str
    """its own words, '' when it had none"""
    exit_code: int | None
    """None when it still ran at the deadline"""


class SmokeStage(Fact, frozen=True):
    name: str
    """'loopback', 'start', 'store', 'gloo', 'nccl'"""
    status: str
    """'ok', 'failed' or 'skipped'"""
    seconds: float
    reason: str
    """why it failed or was skipped; '' when ok"""
    cause: str
    """slug of the fault behind a failure, '' when unknown or ok"""


class SmokeRung(Fact, frozen=True):
    """One size of the all_reduce ladder."""

    stage: str
    size: int
    seconds: float
    """median over its repeats"""
    correct: bool
    bandwidth: float
    """bus bandwidth, bytes a second: 2(n-1)/n · size / seconds"""


class Smoke(Fact, frozen=True):
    world: int
    ranks: tuple[SmokeRank, ...]
    stages: tuple[SmokeStage, ...]
    ladder: tuple[SmokeRung, ...]
