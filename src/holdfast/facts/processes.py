"""Processes, and what earlier ones left behind."""

from __future__ import annotations

from holdfast.facts.base import Fact


class Process(Fact, frozen=True):
    pid: int
    command: str
    """the command line, shortened, secrets removed"""
    user: str
    age: float
    """seconds since it started"""
    parent: int


class Orphan(Fact, frozen=True):
    """A training process whose launcher is gone."""

    process: Process
    rank: int | None
    run_id: str
    """TORCHELASTIC_RUN_ID or ''"""
    sign: str
    """how we know: 'TORCHELASTIC_RUN_ID is set and its parent is pid 1 (systemd)'"""


class ShmSegment(Fact, frozen=True):
    """A file in /dev/shm of the kind that training leaves behind."""

    path: str
    size: int
    age: float
    mapped_by: tuple[int, ...]
    """pids that hold it open or mapped, as far as visible"""
    all_visible: bool
    """False when a process that may hold it could not be inspected"""


class StuckProcess(Fact, frozen=True):
    """A process in uninterruptible sleep (state D), seen so in two looks."""

    process: Process
    wait_channel: str


class Leftovers(Fact, frozen=True):
    orphans: tuple[Orphan, ...]
    segments: tuple[ShmSegment, ...]
    stuck: tuple[StuckProcess, ...]
